-- Fills lexemes (unless the collection's analyzer is external: then they are given) and lexical_weights of a new chunk,
-- and keeps chunks immutable.
create or replace function ragdb.chunk_trigger() returns trigger
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c record;
begin
  if tg_op = 'UPDATE' then
    if (new.chunk_id, new.document_id, new.born_revision, new.text_hash, new.context, new.content)
       is distinct from (old.chunk_id, old.document_id, old.born_revision, old.text_hash, old.context, old.content) then
      raise exception 'chunk % is immutable: its text comes from its document', old.chunk_id
        using errcode = 'RD006', hint = 'Add the document again (ragdb.submit_document); what may be updated lives in ragdb.document.';
    end if;
    return new;
  end if;

  -- waits for a ragdb.reweigh() of the collection, or makes it wait: no chunk keeps weights of the old pivot
  perform from ragdb.document d join ragdb.collection col using (collection_id) where d.document_id = new.document_id for key share of col;
  select col.name, col.analyzer, col.text_search_config, col.k1, col.b, col.pivot_length
    into c
    from ragdb.document d join ragdb.collection col using (collection_id)
   where d.document_id = new.document_id;
  if c.analyzer = 'builtin' then
    new.lexemes := ragdb.analyze(new.context || E'\n' || new.content, c.text_search_config::regconfig);
  elsif new.lexemes is null then
    raise exception 'a chunk of document % comes without lexemes, but collection "%" has an external analyzer', new.document_id, c.name
      using errcode = 'RD004', hint = 'Give "lexemes" with each chunk; in Python: RagDB(..., analyzer=...).';
  end if;
  new.lexical_weights := ragdb.lexical_weights(new.lexemes, c.k1, c.b, c.pivot_length);
  return new;
end
$function$;
comment on function ragdb.chunk_trigger() is 'Fills lexemes and lexical_weights of a new chunk; refuses a change of its text.';

create or replace trigger chunk_lexemes
  before insert or update on ragdb.chunk
  for each row execute function ragdb.chunk_trigger();
comment on trigger chunk_lexemes on ragdb.chunk is 'Fills lexemes and lexical_weights; keeps the text immutable.';
