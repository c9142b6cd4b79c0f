-- Roles for ragdb and their rights; run it with psql, again after each upgrade: it ends in the same state.
--   ragdb db roles | psql -v ON_ERROR_STOP=1 "$RAGDB_DATABASE_URL"        (--prefix acme: roles acme_reader, ...)
--
-- The owner of schema ragdb is whoever ran the migrations; it needs no superuser, and no role from here.
--   ragdb_writer   adds and deletes documents, works the queue; reads every collection
--   ragdb_reader   searches and reads, by functions, the collections that ragdb.grant_collection() gives it
--   ragdb_auditor  sees the stored questions and answers of everybody, and no documents
-- They have no login. Give them to those who log in:  grant ragdb_reader to support_app;
-- Then say what is read:  select ragdb.grant_collection('help', 'support_app', "where" => '{"tenant": 7}');

begin;

-- 1. The roles: needs CREATEROLE, only where they are not there yet.
do $$
declare
  r text;
begin
  foreach r in array array['ragdb_writer', 'ragdb_reader', 'ragdb_auditor'] loop
    if not exists (select from pg_roles where rolname = r) then
      execute format('create role %I nologin', r);
    end if;
  end loop;
end $$;

-- 2. Their rights: as the owner of schema ragdb. Everything is taken first, so that nothing stays of an earlier version,
-- and from PUBLIC too, to whom PostgreSQL gives new functions: also those of a dump restored with --no-privileges.
revoke all on schema ragdb from public;
revoke all on all tables in schema ragdb from public;
revoke all on all sequences in schema ragdb from public;
revoke all on all functions in schema ragdb from public;
revoke all on schema ragdb from ragdb_writer, ragdb_reader, ragdb_auditor;
revoke all on all tables in schema ragdb from ragdb_writer, ragdb_reader, ragdb_auditor;
revoke all on all sequences in schema ragdb from ragdb_writer, ragdb_reader, ragdb_auditor;
revoke all on all functions in schema ragdb from ragdb_writer, ragdb_reader, ragdb_auditor;

grant usage on schema ragdb to ragdb_writer, ragdb_reader, ragdb_auditor;
grant select on ragdb.alembic_version to ragdb_writer, ragdb_reader, ragdb_auditor;

-- Readers have functions only, no table. Where one has to read ragdb.document by table, to join to it, grant it SELECT
-- there: row level security then shows its part (and see docs/dba.md for what EXPLAIN tells).
grant execute on function
  ragdb.search(text, text, integer, jsonb, double precision[], jsonb),
  ragdb.retrieve_lexical(text, text, integer, jsonb, jsonb),
  ragdb.retrieve_semantic(double precision[], text, integer, jsonb, jsonb),
  ragdb.lexical_leg(text, text, integer, jsonb, jsonb),
  ragdb.semantic_leg(double precision[], text, integer, jsonb, jsonb),
  ragdb.rrf(bigint, double precision, integer),
  ragdb.rrf_fuse(jsonb, jsonb, integer, integer),
  ragdb.fuse(jsonb, text, text, jsonb),
  ragdb.neighbors(bigint[], integer),
  ragdb.document_spans(bigint[], bigint[], bigint[]),
  ragdb.section_around(bigint[]),
  ragdb.why_not(bigint, text),
  ragdb.list_collections(),
  ragdb.collection_info(text),
  ragdb.collection_counts(text),
  ragdb.collection_models(text),
  ragdb.model_probe(text),
  ragdb.list_documents(text, jsonb, integer, text),
  ragdb.get_document(text, text),
  ragdb.document_chunks(text, text),
  ragdb.document_title(text, text),
  ragdb.list_runs(text, integer, bigint),
  ragdb.run_citations(bigint),
  ragdb.known_query_vector(text, bigint),
  ragdb.keep_query_vector(text, text, double precision[]),
  ragdb.known_rewrite(text, interval),
  ragdb.keep_rewrite(text, jsonb),
  ragdb.turns(text, text, integer),
  ragdb.give_feedback(bigint, integer, text, text),
  ragdb.record_run(jsonb)
  to ragdb_reader, ragdb_writer;

-- What programs ask when they start, what the policies and the trace ask.
grant execute on function
  ragdb.oldest_program(),
  ragdb.caller(),
  ragdb.reads_all(),
  ragdb.whole_collections(),
  ragdb.limited_documents(),
  ragdb.reads_all_runs(),
  ragdb.explain(bigint, integer)
  to ragdb_reader, ragdb_writer, ragdb_auditor;
grant execute on function ragdb.list_runs(text, integer, bigint), ragdb.run_citations(bigint) to ragdb_auditor;
grant execute on function ragdb.reads_run(text, text, bytea, bigint[]) to ragdb_writer, ragdb_auditor;

-- Writers. Vector sets they fill and list. Adding, activating and dropping one is the owner's: who else may, is told by
--   grant execute on function ragdb.add_vector_set(text, bigint), ragdb.activate_vector_set(text, text, boolean) to deployer;
grant select on ragdb.document, ragdb.run, ragdb.citation to ragdb_writer;
-- The functions run as the owner; `ragdb import` copies rows, so it may insert them, and change none.
grant insert on
  ragdb.document, ragdb.document_revision, ragdb.section, ragdb.chunk, ragdb.chunk_place, ragdb.embedding, ragdb.job
  to ragdb_writer;
grant usage on sequence
  ragdb.document_document_id_seq, ragdb.section_section_id_seq, ragdb.chunk_chunk_id_seq
  to ragdb_writer;
grant update (status, metadata, owner, version, language, updated_at, review_after) on ragdb.document to ragdb_writer;
grant select, insert, update, delete on ragdb.synonym to ragdb_writer;
grant select on
  ragdb.watched_table, ragdb.watched_tables,
  ragdb.job, ragdb.collection, ragdb.embedding_model, ragdb.vector_set, ragdb.vector_gap, ragdb.live_filter, ragdb.queue_depth, ragdb.queue_rate, ragdb.failed_jobs,
  ragdb.stale_documents, ragdb.sizes
  to ragdb_writer;
grant execute on function
  ragdb.put_document(text, jsonb, jsonb),
  ragdb.put_text(text, text, jsonb, jsonb),
  ragdb.submit_document(text, text, text, text, jsonb, jsonb),
  ragdb.delete_document(text, text),
  ragdb.watch_table(regclass, text, text, text, jsonb, text, jsonb),
  ragdb.unwatch_table(regclass, text, boolean),
  ragdb.unwatch(bigint, boolean),
  ragdb.backfill_table(regclass, integer, text),
  ragdb.documents_from(text, jsonb),
  ragdb.documents_below(text, text, text, text, bigint, integer),
  ragdb.know_sources(text, jsonb, text),
  ragdb.rename_document(text, text, text, text, text, boolean),
  ragdb.create_collection(text, bigint, jsonb),
  ragdb.set_fusion(text, jsonb),
  ragdb.rrf_sweep(jsonb, jsonb),
  ragdb.chunk_documents(bigint[]),
  ragdb.register_model(text, integer, text, text, integer, double precision),
  ragdb.claim_jobs(text, integer, interval, text, bigint, bigint, bigint[]),
  ragdb.extend_lease(bigint, uuid, interval),
  ragdb.extend_leases(text, interval),
  ragdb.job_text(bigint, boolean),
  ragdb.cut_job(bigint, uuid, text, jsonb),
  ragdb.revision_chunks(bigint, integer),
  ragdb.chunks_to_embed(bigint, integer, integer, integer),
  ragdb.store_vectors(bigint, uuid, bigint[], double precision[], interval, text),
  ragdb.keep_probe(text, double precision[]),
  ragdb.hold_active_model(bigint, bigint),
  ragdb.note_gaps(bigint, bigint[]),
  ragdb.vector_sets(text),
  ragdb.sets_to_fill(text),
  ragdb.claim_gaps(text, bigint, integer, interval),
  ragdb.store_gaps(bigint, uuid, bigint[], bigint[], double precision[]),
  ragdb.release_gaps(bigint, uuid, bigint[], interval, text),
  ragdb.finish_job(bigint, uuid),
  ragdb.fail_job(bigint, uuid, text, boolean, interval),
  ragdb.texts_to_embed(bigint[], bigint[], integer),
  ragdb.store_batch(bigint[], uuid[], bigint[], double precision[], bigint[], text, interval),
  ragdb.release_job(bigint, uuid, interval),
  ragdb.release_jobs(text, text),
  ragdb.retry_jobs(text, text),
  ragdb.wake_workers(text),
  ragdb.job_holders(),
  ragdb.document_state(bigint),
  ragdb.refresh_lexical_stats(text, boolean),
  ragdb.prune(interval, interval, integer),
  ragdb.lexical_query(text, text, jsonb),
  ragdb.search_plan(text, text, integer, jsonb, double precision[], jsonb)
  to ragdb_writer;

-- Evaluation: who writes documents measures what finds them.
grant select on
  ragdb.eval_set, ragdb.eval_question, ragdb.eval_judgement, ragdb.eval_run, ragdb.eval_result, ragdb.eval_score, ragdb.eval_verdict,
  ragdb.eval_summary
  to ragdb_writer, ragdb_auditor;
grant execute on function
  ragdb.put_eval_set(text, text, text, text),
  ragdb.put_eval_questions(text, jsonb),
  ragdb.eval_sets(),
  ragdb.eval_questions(text, jsonb),
  ragdb.set_eval_state(text, jsonb, text),
  ragdb.delete_eval_set(text),
  ragdb.eval_evidence(text, text),
  ragdb.collection_fingerprint(text),
  ragdb.start_eval_run(jsonb),
  ragdb.record_eval_result(bigint, jsonb),
  ragdb.put_eval_scores(bigint, jsonb),
  ragdb.finish_eval_run(bigint, jsonb),
  ragdb.eval_runs(text, text, bigint, integer),
  ragdb.eval_results(bigint),
  ragdb.eval_verdicts(bigint),
  ragdb.delete_eval_run(bigint),
  ragdb.copy_collection(text, text, text, text, integer)
  to ragdb_writer;

-- What the functions of watched tables call with the rights of their caller. The trigger's own: who makes a trigger must
-- be able to execute it; who fires it need not.
grant execute on function
  ragdb.watch_row(),
  ragdb.refuse_watch(text, text),
  ragdb.watchable_column(regclass, text, text),
  ragdb.watch_fields(regclass, text, text, text, jsonb, jsonb),
  ragdb.check_watchable(regclass, text, jsonb),
  ragdb.is_compared(regclass, text),
  ragdb.watch_of(regclass, text),
  ragdb.register_watch(bigint, text, jsonb),
  ragdb.forget_watch(bigint),
  ragdb.delete_watched(bigint),
  ragdb.watched_row(ragdb.watched_table, oid, text),
  ragdb.follow_row(bigint, text, jsonb),
  ragdb.without_row(regclass, text, text),
  ragdb.stray_document(bigint, regclass),
  ragdb.watched_documents(bigint, text, integer),
  ragdb.hold_watch(bigint),
  ragdb.hold_document(bigint, text),
  ragdb.keep_progress(bigint, jsonb),
  ragdb.rows_without_document(bigint)
  to ragdb_writer;

-- Auditors.
grant select on
  ragdb.run, ragdb.run_stage, ragdb.citation, ragdb.claim, ragdb.feedback,
  ragdb.run_candidate, ragdb.run_latency, ragdb.run_cost, ragdb.run_outcome, ragdb.run_trial
  to ragdb_auditor;
grant select on
  ragdb.run_stage, ragdb.claim, ragdb.feedback, ragdb.run_candidate, ragdb.run_latency, ragdb.run_cost, ragdb.run_outcome, ragdb.run_trial
  to ragdb_writer;

commit;
