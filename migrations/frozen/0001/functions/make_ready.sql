-- The chunks of a revision that lack a vector of the collection's active model, with the text to embed, in order.
create or replace function ragdb.chunks_to_embed(document_id bigint, revision integer, after_ordinal integer default -1, how_many integer default null)
returns table (chunk_id bigint, body text, ordinal integer)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
  select k.chunk_id, case when k.context = '' then k.content else k.context || E'\n' || k.content end, p.ordinal
    from ragdb.chunk_place p
    join ragdb.chunk k using (chunk_id)
    join ragdb.document d on d.document_id = p.document_id
    join ragdb.collection c on c.collection_id = d.collection_id
   where p.document_id = chunks_to_embed.document_id and p.revision = chunks_to_embed.revision and p.ordinal > after_ordinal
     and not exists (select from ragdb.embedding e where e.chunk_id = k.chunk_id and e.model_id = c.active_model_id)
   order by p.ordinal
   limit how_many
$function$;
comment on function ragdb.chunks_to_embed(bigint, integer, integer, integer) is 'Chunks of a revision without a vector of the active model, with the text to embed.';

-- The flip: one statement makes the pending revision the one that answers and removes what it no longer has. A reader
-- sees all of the old or all of the new. Returns false where that revision is not pending (any more).
create or replace function ragdb.make_ready(document_id bigint, revision integer) returns boolean
language plpgsql
set search_path from current
as $function$
declare
  missing bigint;
  c ragdb.collection;
begin
  if exists (select from ragdb.document_revision r
              where r.document_id = make_ready.document_id and r.revision = make_ready.revision and r.chunking is null) then
    raise exception 'document %, revision %: the text is not cut into chunks yet', make_ready.document_id, make_ready.revision
      using errcode = 'RD011', hint = 'Let a worker finish it: ragdb worker --once';
  end if;
  -- held to the end of the transaction: another set made active meanwhile would find a ready document without its vectors
  select x.* into c
    from ragdb.collection x
   where x.collection_id = (select d.collection_id from ragdb.document d where d.document_id = make_ready.document_id)
     for share;
  select count(*) into missing from ragdb.chunks_to_embed(make_ready.document_id, make_ready.revision);
  if missing > 0 then
    raise exception 'document %, revision %: % chunks have no vector of the active model (%) yet', make_ready.document_id, make_ready.revision,
        missing, coalesce((select m.name from ragdb.embedding_model m where m.model_id = c.active_model_id), 'there is none')
      using errcode = 'RD010', hint = 'Let a worker finish it: ragdb worker --once';
  end if;
  with flipped as (
    update ragdb.document d
       set ready_revision = r.revision, pending_revision = null, title = r.title, content_hash = r.content_hash,
           n_chunks = (select count(*) from ragdb.chunk_place p where p.document_id = r.document_id and p.revision = r.revision),
           ingest_state = 'ready', last_error = null, ready_at = now()
      from ragdb.document_revision r
     where d.document_id = make_ready.document_id and d.pending_revision = make_ready.revision
       and r.document_id = d.document_id and r.revision = d.pending_revision
    returning d.document_id),
  done as (
    delete from ragdb.job j using flipped f where j.document_id = f.document_id and j.revision = make_ready.revision),
  places as (
    delete from ragdb.chunk_place p using flipped f where p.document_id = f.document_id and p.revision < make_ready.revision),
  sections as (
    delete from ragdb.section s using flipped f where s.document_id = f.document_id and s.revision < make_ready.revision),
  texts as (
    delete from ragdb.document_revision r using flipped f where r.document_id = f.document_id and r.revision < make_ready.revision),
  chunks as (
    delete from ragdb.chunk k using flipped f
     where k.document_id = f.document_id
       and not exists (select from ragdb.chunk_place p where p.chunk_id = k.chunk_id and p.revision = make_ready.revision))
  select count(*) into missing from flipped;
  if missing = 1 then
    update ragdb.document d
       set (status, language, owner, version, updated_at, review_after, metadata, found) =
           (select g.status, g.language, g.owner, g.version, g.updated_at, g.review_after, g.metadata, g.found
              from ragdb.document_columns(d, r.said) g)
      from ragdb.document_revision r
     where d.document_id = make_ready.document_id and r.document_id = d.document_id and r.revision = make_ready.revision and r.said is not null;
    perform ragdb.note_gaps(c.collection_id, array[make_ready.document_id]);
  end if;
  return missing = 1;
end
$function$;
comment on function ragdb.make_ready(bigint, integer) is 'Flips a document to its pending revision in one statement; refuses while a chunk lacks its vector.';
