-- Computes the BM25 weights of a collection's chunks again, for another pivot_length, k1 or b: the average length of
-- its chunks as last counted, unless `pivot` says otherwise. Rewrites every row of ragdb.chunk in the collection and its
-- index entries, so it is an explicit verb. Large collections go in steps: call it with `after` = what it returned,
-- until that is null. Writers of the collection's chunks wait until its transaction ends.
--   select ragdb.reweigh('help');
create or replace function ragdb.reweigh(collection text, pivot double precision default null, after bigint default 0, how_many integer default null)
returns bigint
language plpgsql
set search_path from current
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  last_id bigint;
begin
  -- writers of chunks hold it shared: see ragdb.chunk_trigger()
  select * into c from ragdb.collection x where x.collection_id = c.collection_id for update;
  if after = 0 then
    update ragdb.collection x
       set pivot_length = greatest(1, coalesce(pivot, (select s.average_length from ragdb.lexical_stats s where s.collection_id = x.collection_id), x.pivot_length))
     where x.collection_id = c.collection_id
    returning x.* into c;
  end if;
  with batch as (
    select k.chunk_id
      from ragdb.chunk k join ragdb.document d using (document_id)
     where d.collection_id = c.collection_id and k.chunk_id > after
     order by k.chunk_id
     limit how_many),
  done as (
    update ragdb.chunk k set lexical_weights = ragdb.lexical_weights(k.lexemes, c.k1, c.b, c.pivot_length)
      from batch where k.chunk_id = batch.chunk_id
    returning k.chunk_id)
  select max(chunk_id) into last_id from done;
  return case when how_many is null then null else last_id end;
end
$function$;
comment on function ragdb.reweigh(text, double precision, bigint, integer) is
  'Computes the BM25 weights of a collection again, by its average chunk length or a given pivot; in steps with after and how_many.';
