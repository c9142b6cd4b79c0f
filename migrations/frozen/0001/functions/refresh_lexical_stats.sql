-- Counts, for one collection or all, in how many chunks each lexeme stands. By upsert, so that readers always see
-- numbers; two at a time do nothing twice. Stale numbers cost a little ranking quality and never hide a document.
-- With `only_if_moved` it returns at once unless the collection grew or shrank by a fifth since the last count.
create or replace function ragdb.refresh_lexical_stats(collection text default null, only_if_moved boolean default false)
returns table (name text, n_chunks bigint, n_lexemes bigint)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c record;
  now_chunks bigint;
  words bigint;
begin
  if collection is not null then
    perform ragdb.known_collection(collection);
  end if;
  for c in
    select x.collection_id, x.name, coalesce(s.n_chunks, 0) as counted
      from ragdb.collection x left join ragdb.lexical_stats s using (collection_id)
     where x.name = coalesce(collection, x.name)
     order by x.collection_id
  loop
    select coalesce(sum(d.n_chunks), 0) into now_chunks from ragdb.document d where d.collection_id = c.collection_id;
    if only_if_moved and abs(now_chunks - c.counted) <= 0.2 * c.counted then
      continue;
    end if;
    -- a second refresh of the same collection would only wait to do the same again
    perform from ragdb.collection x where x.collection_id = c.collection_id for no key update skip locked;
    if not found then
      continue;
    end if;

    with counted as materialized (
      select t.word, t.ndoc
        from ts_stat(pg_catalog.format('select k.lexemes from ragdb.chunk k join ragdb.document d using (document_id) where d.collection_id = %s', c.collection_id)) t),
    changed as (
      insert into ragdb.lexeme as l (collection_id, lexeme, ndoc)
      select c.collection_id, w.word, w.ndoc from counted w order by w.word
      on conflict (collection_id, lexeme) do update set ndoc = excluded.ndoc where l.ndoc is distinct from excluded.ndoc),
    gone as (
      delete from ragdb.lexeme l
       where l.collection_id = c.collection_id and not exists (select from counted w where w.word = l.lexeme))
    select count(*) into words from counted;
    insert into ragdb.lexical_stats as s (collection_id, n_chunks, average_length)
    select c.collection_id, count(*), coalesce(avg(x.length), 0)
      from (select (select sum(coalesce(cardinality(u.positions), 1)) from unnest(k.lexemes) u) as length
              from ragdb.chunk k join ragdb.document d using (document_id) where d.collection_id = c.collection_id) x
    on conflict (collection_id) do update
      set n_chunks = excluded.n_chunks, average_length = excluded.average_length, refreshed_at = now();

    return query select c.name, s.n_chunks, words
                   from ragdb.lexical_stats s where s.collection_id = c.collection_id;
  end loop;
end
$function$;
comment on function ragdb.refresh_lexical_stats(text, boolean) is
  'Counts document frequencies of a collection (or all) again; safe beside readers and writers, callable by pg_cron.';
