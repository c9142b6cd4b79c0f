-- How the questions of a day ended: outcomes, what was left out on the way, what the caches saved, what readers thought.
--   select * from ragdb.run_outcome where day > now() - interval '7 days';
-- fell_back: a rewriter, the reranker or a leg was left out, or failed. rewrites_kept: rewriters whose queries an earlier run
-- had made. vectors_kept: runs that embedded nothing. uncited, misquoted: sentences of answers.
create or replace view ragdb.run_outcome with (security_invoker = true) as
select r.collection, date_trunc('day', r.started_at) as day, r.verb, count(*) as runs,
       count(*) filter (where r.outcome = 'answered') as answered,
       count(*) filter (where r.outcome = 'not_in_documents') as not_in_documents,
       count(*) filter (where r.outcome = 'nothing_retrieved') as nothing_retrieved,
       count(*) filter (where r.outcome = 'no_retrieval') as no_retrieval,
       count(*) filter (where r.outcome = 'llm_failed') as llm_failed,
       count(*) filter (where r.outcome = 'cancelled') as cancelled,
       count(*) filter (where s.fell_back) as fell_back,
       sum(s.rewrites) as rewrites, sum(s.rewrites_kept) as rewrites_kept,
       count(*) filter (where s.semantic and not r.usage ? 'embed_ms') as vectors_kept,
       count(*) filter (where r.usage ->> 'truncated_by_server' = 'true') as truncated_by_server,
       sum(c.sentences) as sentences, sum(c.uncited) as uncited, sum(c.misquoted) as misquoted,
       sum(f.good) as good, sum(f.bad) as bad
  from ragdb.run r
 cross join lateral (
   select coalesce(bool_or(x.note like 'left out: %' or x.note like 'kept the fused order: %'), false) as fell_back,
          coalesce(bool_or(x.stage = 'retrieve' and x.name like 'semantic%'), false) as semantic,
          count(*) filter (where x.stage = 'rewrite') as rewrites,
          count(*) filter (where x.stage = 'rewrite' and x.note like '%(from an earlier run)') as rewrites_kept
     from ragdb.run_stage x where x.run_id = r.run_id) s
 cross join lateral (
   select count(*) as sentences, count(*) filter (where x.numbers = '{}') as uncited, coalesce(sum(x.misquoted), 0) as misquoted
     from ragdb.claim x where x.run_id = r.run_id) c
 cross join lateral (
   select count(*) filter (where x.rating > 0) as good, count(*) filter (where x.rating < 0) as bad
     from ragdb.feedback x where x.run_id = r.run_id) f
 where r.eval_run_id is null
 group by r.collection, date_trunc('day', r.started_at), r.verb
 order by day desc, r.collection, r.verb;
comment on view ragdb.run_outcome is 'How the questions of a day ended: outcomes, fallbacks, what caches saved, uncited sentences, feedback.';
comment on column ragdb.run_outcome.fell_back is 'runs in which a rewriter, the reranker or a leg was left out or failed';
comment on column ragdb.run_outcome.rewrites_kept is 'rewriters whose queries an earlier run had made';
comment on column ragdb.run_outcome.vectors_kept is 'runs that had to embed nothing';
comment on column ragdb.run_outcome.truncated_by_server is 'runs whose server read less than was sent';
comment on column ragdb.run_outcome.uncited is 'sentences of answers that cite nothing';
comment on column ragdb.run_outcome.misquoted is 'quotations that stand in no passage they cite';
comment on column ragdb.run_outcome.good is 'readers who found the answer good';
comment on column ragdb.run_outcome.bad is 'readers who found it bad';
