-- Every chunk at every stage of every run: with rank and score where it came out, with the reason where it fell.
--   select * from ragdb.run_candidate where run_id = 42 and chunk_id = 812;
create or replace view ragdb.run_candidate with (security_invoker = true) as
select s.run_id, s.step, s.stage, s.name, u.chunk_id, u.rank::integer as rank, u.score, null::text as fell
  from ragdb.run_stage s, unnest(s.chunk_ids, s.scores) with ordinality as u(chunk_id, score, rank)
union all
select s.run_id, s.step, s.stage, s.name, i.value::bigint, null, null, d.key
  from ragdb.run_stage s, jsonb_each(s.dropped) d, jsonb_array_elements_text(d.value) i;
comment on view ragdb.run_candidate is 'Every chunk at every stage of a run, with its rank and score, or with the reason it fell.';
comment on column ragdb.run_candidate.step is 'order of the stage in its run, from 1';
comment on column ragdb.run_candidate.name is 'the leg or adapter; lexical/2 is that of the second further query';
comment on column ragdb.run_candidate.rank is 'place among what came out of the stage, from 1; null where the chunk fell';
comment on column ragdb.run_candidate.score is 'score at this stage: BM25, cosine, RRF, by stage; null where the chunk fell';
comment on column ragdb.run_candidate.fell is 'why the chunk fell at this stage; null where it came out';
