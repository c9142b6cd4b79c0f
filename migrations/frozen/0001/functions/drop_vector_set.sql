-- Removing a set: first its row, so that nothing reads or fills it any more, then its vectors in batches, a transaction each
-- (ragdb.drop_vectors), then its model where nobody else uses it (ragdb.drop_model). `ragdb embedder drop` does all of it,
-- and removes the HNSW index in between.

-- Returns the model's id, and whether another collection keeps a set of it. What an interrupted drop left is taken up again:
-- of a model that is there, and no set of this collection any more.
create or replace function ragdb.drop_vector_set(collection text, model text)
returns table (model_id bigint, elsewhere boolean)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
#variable_conflict use_column
declare
  c ragdb.collection := ragdb.known_collection(collection);
  m ragdb.embedding_model;
begin
  select e.* into m from ragdb.embedding_model e where e.name = drop_vector_set.model;
  if not found then
    raise exception 'there is no embedding model "%"', model using errcode = 'RD004', hint = 'Look at: ragdb embedder list';
  end if;
  -- against ragdb.activate_vector_set()
  select x.* into c from ragdb.collection x where x.collection_id = c.collection_id for no key update;
  if c.active_model_id = m.model_id then
    raise exception 'the vector set of "%" is the active one of collection "%"', m.name, c.name
      using errcode = 'RD004', hint = 'Activate another one first: ragdb embedder activate NAME';
  end if;
  delete from ragdb.vector_set s where s.collection_id = c.collection_id and s.model_id = m.model_id;
  return query select m.model_id, exists (select from ragdb.vector_set s where s.model_id = m.model_id);
end
$function$;
comment on function ragdb.drop_vector_set(text, text) is 'Removes a vector set that is not active from a collection; its vectors are removed by ragdb.drop_vectors().';

-- Deletes vectors of a model that is no set of the collection any more, `how_many` a call, in the order of chunks from
-- `after_chunk` on. Returns how many, and the last chunk, null at the end.
create or replace function ragdb.drop_vectors(collection text, model_id bigint, after_chunk bigint default 0, how_many integer default 5000, out deleted bigint, out last bigint)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
begin
  if exists (select from ragdb.vector_set s where s.collection_id = c.collection_id and s.model_id = drop_vectors.model_id) then
    raise exception 'model % is a vector set of collection "%"', model_id, c.name
      using errcode = 'RD004', hint = 'Remove the set first: ragdb.drop_vector_set().';
  end if;
  with next as materialized (
    select e.chunk_id, e.model_id from ragdb.embedding e
     where e.chunk_id > after_chunk and e.model_id = drop_vectors.model_id
     order by e.chunk_id limit how_many),
  gone as (
    delete from ragdb.embedding e using next x
     where e.chunk_id = x.chunk_id and e.model_id = x.model_id
       and exists (select from ragdb.chunk k join ragdb.document d on d.document_id = k.document_id
                    where k.chunk_id = x.chunk_id and d.collection_id = c.collection_id)
    returning 1)
  select (select count(*) from gone), (select max(x.chunk_id) from next x) into deleted, last;
end
$function$;
comment on function ragdb.drop_vectors(text, bigint, bigint, integer) is 'Deletes vectors of a model that is no set of the collection any more, some at a time; returns how many and how far.';

-- Forgets a model that no collection uses, and the questions' vectors kept for it; false where one uses it, or it has vectors.
create or replace function ragdb.drop_model(model_id bigint) returns boolean
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
begin
  if exists (select from ragdb.vector_set s where s.model_id = drop_model.model_id) then
    return false;
  end if;
  delete from ragdb.embedding_model m where m.model_id = drop_model.model_id;
  return found;
exception when foreign_key_violation then
  return false;
end
$function$;
comment on function ragdb.drop_model(bigint) is 'Forgets a model that no collection uses, with the vectors of questions kept for it; false where it is used.';
