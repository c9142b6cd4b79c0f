-- Active documents that somebody should look at again: their review_after has passed. The longest overdue first. Reads
-- every document.
--   select owner, uri, overdue from ragdb.stale_documents where collection = 'help';
create or replace view ragdb.stale_documents with (security_invoker = true) as
select c.name as collection, d.document_id, d.uri, d.title, d.owner, d.updated_at, d.review_after, now() - d.review_after as overdue
  from ragdb.document d
  join ragdb.collection c on c.collection_id = d.collection_id
 where d.status = 'active' and d.review_after < now()
 order by d.review_after, d.document_id;
comment on view ragdb.stale_documents is 'Active documents whose review_after has passed, with their owners, the longest overdue first.';
comment on column ragdb.stale_documents.overdue is 'how long ago review_after passed';
