-- The documents that chunks stand in, and the hash of their text: chunks of one hash are one in a search. For tuning, which
-- fuses the same lists many times over.
create or replace function ragdb.chunk_documents(chunk_ids bigint[])
returns table (chunk_id bigint, uri text, text_hash bytea)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select k.chunk_id, d.uri, k.text_hash
    from ragdb.chunk k join ragdb.document d using (document_id)
   where k.chunk_id = any (chunk_ids)
$function$;
comment on function ragdb.chunk_documents(bigint[]) is 'The documents that chunks stand in, with the hash of each text; for who reads all collections.';
