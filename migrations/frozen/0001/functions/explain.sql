-- The funnel of a run: every stage in order, what came out of it with rank and score, what fell and why
-- (of what came out the first `top`).
--   select * from ragdb.explain(42);
create or replace function ragdb.explain(run_id bigint, "top" integer default 10)
returns table (step integer, stage text, name text, rank integer, score double precision, label text, snippet text, fell text, chunk_id bigint, ms double precision, note text)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  -- ids of a run come from clients, and rights change: only what may be read now is shown
  readable bigint[];
begin
  if not exists (select from ragdb.run r
                  where r.run_id = explain.run_id and ragdb.reads_run(r.collection, r.caller, r.limits_hash, r.document_ids)) then
    raise exception 'run % does not exist', explain.run_id
      using errcode = 'RD009', hint = 'Look at: select run_id, question from ragdb.list_runs()';
  end if;
  if not ragdb.reads_all() then
    readable := ragdb.readable_documents(array(
      select distinct k.document_id from ragdb.chunk k
       where k.chunk_id = any (array(select distinct x.chunk_id from ragdb.run_candidate x where x.run_id = explain.run_id))));
  end if;
  return query
  select s.step, s.stage, s.name, c.rank, c.score,
         coalesce(k.label, case when c.chunk_id is not null then pg_catalog.format('chunk %s%s', c.chunk_id, case when readable is null then ' (no longer there)' end) end),
         left(regexp_replace(k.content, '\s+', ' ', 'g'), 100), c.fell, c.chunk_id, s.ms, s.note
    from ragdb.run_stage s
    left join lateral (
      select x.*, row_number() over (partition by x.fell order by x.rank, x.chunk_id) as place
        from ragdb.run_candidate x where x.run_id = s.run_id and x.step = s.step) c on c.place <= "top" or c.fell is not null
    -- one by one through the keys: a stage is taken for thousands of chunks, and the whole tables would be read
    left join lateral (
      select t.content, p.label
        from ragdb.chunk t
        left join ragdb.document d on d.document_id = t.document_id
        left join lateral (select x.* from ragdb.chunk_place x where x.chunk_id = t.chunk_id offset 0) p
          on p.document_id = d.document_id and p.revision = d.ready_revision
       where t.chunk_id = c.chunk_id and (readable is null or t.document_id = any (readable))
      offset 0) k on true
   where s.run_id = explain.run_id
   order by s.step, c.rank nulls last, c.chunk_id;
end
$function$;
comment on function ragdb.explain(bigint, integer) is 'The funnel of a run: each stage, its chunks with rank and score, and what fell and why.';
