-- A document's identity and revisions are not for hands: status, metadata, owner, version, language, updated_at,
-- review_after may be updated; the text comes with ragdb.submit_document() or ragdb.put_document().
create or replace function ragdb.document_trigger() returns trigger
language plpgsql
set search_path from current
as $function$
begin
  if (new.document_id, new.collection_id, new.uri) is distinct from (old.document_id, old.collection_id, old.uri)
     and ((new.document_id, new.collection_id) is distinct from (old.document_id, old.collection_id)
          -- set by ragdb.rename_document(), which also renames what follows from the uri
          or current_setting('ragdb.renamed', true) is distinct from old.document_id::text) then
    raise exception 'document % keeps its collection and uri (%)', old.document_id, old.uri
      using errcode = 'RD006', hint = 'Rename it with ragdb.rename_document(), or delete it and submit it under its new name.';
  end if;
  if new.title is distinct from old.title and new.ready_revision = old.ready_revision and old.ready_revision > 0 then
    raise exception 'the title of document % (%) is indexed with its text', old.document_id, old.uri
      using errcode = 'RD006', hint = 'Submit the text again with its new title (ragdb.submit_document).';
  end if;
  return new;
end
$function$;
comment on function ragdb.document_trigger() is 'Refuses a change of a document''s identity, or of its title alone.';

create or replace trigger document_identity
  before update of document_id, collection_id, uri, title on ragdb.document
  for each row execute function ragdb.document_trigger();
comment on trigger document_identity on ragdb.document is 'A document keeps its collection and uri; its title changes with its text.';

-- The text of a revision never changes: offsets of chunks and citations point into it.
create or replace function ragdb.revision_trigger() returns trigger
language plpgsql
set search_path from current
as $function$
begin
  if (new.document_id, new.revision, new.title, new.content) is distinct from (old.document_id, old.revision, old.title, old.content) then
    raise exception 'the text of document %, revision %, is immutable', old.document_id, old.revision
      using errcode = 'RD006', hint = 'Submit the new text with ragdb.submit_document(); it becomes a new revision.';
  end if;
  return new;
end
$function$;
comment on function ragdb.revision_trigger() is 'Refuses a change of a revision''s text.';

create or replace trigger revision_text
  before update on ragdb.document_revision
  for each row execute function ragdb.revision_trigger();
comment on trigger revision_text on ragdb.document_revision is 'The text of a revision never changes.';
