-- Row level security: what direct reads of these tables show to roles that may read them at all (see roles.sql: writers
-- and auditors do, who see everything; a reader that is granted SELECT sees its part, and by EXPLAIN ANALYZE and
-- comparisons a little about the rest: docs/dba.md). The
-- owner and the search functions, which run as the owner, are not held by it: the functions ask ragdb.document_filter().
-- What a policy asks once a query stands in a sub-select; each alternative is tried only where those before it are false.
-- `chunk`, `embedding` and `lexeme` have none: `@@` is not leakproof, and the GIN index would be lost. Nobody but the
-- owner reads them.

alter table ragdb.document enable row level security;
create policy readable on ragdb.document using (
  (select ragdb.reads_all())
  or collection_id = any ((select ragdb.whole_collections())::bigint[])
  or document_id in (select ragdb.limited_documents()));
comment on policy readable on ragdb.document is 'The documents of the collections that the caller reads, or the part of them that a grant names.';

alter table ragdb.run enable row level security;
create policy readable on ragdb.run using (
  (select ragdb.reads_all_runs())
  or caller = (select ragdb.caller()) and ragdb.reads_run(collection, caller, limits_hash, document_ids));
comment on policy readable on ragdb.run is 'All runs for auditors and writers; for others those of their own role, within what it still reads.';

alter table ragdb.citation enable row level security;
create policy readable on ragdb.citation using (
  (select ragdb.reads_all_runs()) or exists (select from ragdb.run r where r.run_id = citation.run_id));
comment on policy readable on ragdb.citation is 'The citations of the runs that the caller sees.';
