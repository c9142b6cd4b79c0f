-- The lexical leg: BM25 over ragdb.chunk, at most `candidates` chunks, best first, `where` before the limit.
-- One row, so that the path taken is known also where nothing was found.
create or replace function ragdb.lexical_leg(
  question text, collection text default 'default', candidates integer default 50, "where" jsonb default '{}', options jsonb default '{}',
  out chunk_ids bigint[], out scores double precision[], out path text, out matching bigint, out note text)
language plpgsql stable
security definer
set search_path from current
set jit = off
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  filter record;
  plan record;
  seqscan text := current_setting('enable_seqscan');
begin
  filter := ragdb.where_clause("where");
  c.exact_limit := coalesce((options ->> 'exact_limit')::integer, c.exact_limit);
  matching := ragdb.matching_chunks(c.collection_id, filter.condition, filter.vals, c.exact_limit);
  plan := ragdb.lexical_plan(c, question, matching);
  path := plan.path;
  note := plan.note;
  if path = 'empty' then
    chunk_ids := '{}';
    scores := '{}';
    return;
  end if;

  -- The planner does not know that @@ costs by the word. Set and put back by hand: a SET clause on a function
  -- would hold for the exact path too.
  if path = 'gin' then
    perform set_config('enable_seqscan', 'off', true);
  end if;
  execute format('select coalesce(array_agg(x.chunk_id order by x.score desc, x.chunk_id), ''{}''),
                         coalesce(array_agg(x.score order by x.score desc, x.chunk_id), ''{}'')
                    from (%s) x', ragdb.lexical_statement(path, filter.condition))
     into chunk_ids, scores
    using c.collection_id, filter.vals, plan.query, candidates, plan.candidates;
  if path = 'gin' then
    perform set_config('enable_seqscan', seqscan, true);
  end if;
end
$function$;
comment on function ragdb.lexical_leg(text, text, integer, jsonb, jsonb) is
  'The lexical leg as one row: chunk ids and BM25 scores, best first, the path taken, how many chunks match the filter.';

create or replace function ragdb.retrieve_lexical(
  question text, collection text default 'default', candidates integer default 50, "where" jsonb default '{}', options jsonb default '{}')
returns table (rank integer, chunk_id bigint, score double precision)
language sql stable
security definer
set search_path from current
as $function$
  select u.rank::integer, u.chunk_id, u.score
    from ragdb.lexical_leg(question, collection, candidates, "where", options) l,
         unnest(l.chunk_ids, l.scores) with ordinality as u(chunk_id, score, rank)
   order by u.rank
$function$;
comment on function ragdb.retrieve_lexical(text, text, integer, jsonb, jsonb) is
  'The lexical leg as rows: rank, chunk_id, BM25 score.';
