-- Several claimed jobs at once: a batch for the embedder holds texts of many documents.

-- The texts that claimed jobs still lack vectors for, job by job in the given order, each from its `after_ordinals` on; at
-- most `how_many` in all. Fewer rows than that: these are all.
create or replace function ragdb.texts_to_embed(job_ids bigint[], after_ordinals bigint[], how_many integer)
returns table (job_id bigint, chunk_id bigint, body text, ordinal integer)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
  select j.job_id, t.chunk_id, t.body, t.ordinal
    from unnest(job_ids, after_ordinals) with ordinality u(id, after_ordinal, n)
    join ragdb.job j on j.job_id = u.id
   cross join lateral ragdb.chunks_to_embed(j.document_id, j.revision, u.after_ordinal::integer, how_many) t
   order by u.n, t.ordinal
   limit how_many
$function$;
comment on function ragdb.texts_to_embed(bigint[], bigint[], integer) is 'Texts without a vector of several claimed jobs, in order.';

-- Stores vectors of several claimed jobs, and makes those ready that are `finished`, in one transaction. `numbers` holds the
-- vectors one after the other, in the order of chunk_ids; all made by `model`. What became of each job: stored, ready,
-- stale (its token is no longer the job's: nothing was written) or busy (another transaction has its document in hand:
-- nothing was written; ragdb.store_vectors() waits for it) or moved (its collection has another active model by now: nothing was
-- written). It waits for no lock, so it takes part in no deadlock.
create or replace function ragdb.store_batch(
  job_ids bigint[], lease_tokens uuid[], chunk_ids bigint[], numbers double precision[], finished bigint[], model text,
  lease interval default '5 minutes')
returns table (job_id bigint, outcome text)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  held bigint[];
  m ragdb.embedding_model;
  x record;
begin
  select e.* into m from ragdb.embedding_model e where e.name = model;
  select coalesce(array_agg(h.job_id), '{}') into held
    from (select j.job_id
            from unnest(job_ids, lease_tokens) u(id, token)
            join ragdb.job j on j.job_id = u.id and j.lease_token = u.token
            join ragdb.document d on d.document_id = j.document_id
            join ragdb.collection c on c.collection_id = j.collection_id and c.active_model_id = m.model_id
             for update of j, d skip locked) h;
  if cardinality(chunk_ids) > 0 then
    if cardinality(numbers) <> cardinality(chunk_ids) * m.dims then
      raise exception '% numbers for % chunks; model "%" has % dimensions', cardinality(numbers), cardinality(chunk_ids), m.name, m.dims
        using errcode = 'RD003', hint = 'Look at what the embedder returned.';
    end if;
    insert into ragdb.embedding (chunk_id, model_id, dims, v)
    select u.id, m.model_id, m.dims, ragdb.checked_vector(numbers[(u.n - 1) * m.dims + 1 : u.n * m.dims], m.dims, m.name)
      from unnest(chunk_ids) with ordinality u(id, n)
      join ragdb.chunk k on k.chunk_id = u.id
      join ragdb.job j on j.document_id = k.document_id and j.job_id = any(held)
     order by u.n
    on conflict on constraint embedding_pkey do update set v = excluded.v;
  end if;
  update ragdb.job j set leased_until = clock_timestamp() + lease, suspect = false
   where j.job_id = any(held) and not j.job_id = any(finished);
  for x in
    select u.id, j.document_id, j.revision, j.job_id is not null as is_held, u.id = any(finished) as is_finished,
           o.job_id is not null as is_ours, c.active_model_id is distinct from m.model_id as is_moved
      from unnest(job_ids, lease_tokens) with ordinality u(id, token, n)
      left join ragdb.job j on j.job_id = u.id and u.id = any(held)
      left join ragdb.job o on o.job_id = u.id and o.lease_token = u.token
      left join ragdb.collection c on c.collection_id = o.collection_id
     order by u.n
  loop
    job_id := x.id;
    outcome := case when x.is_held then case when x.is_finished then 'ready' else 'stored' end
                    when not x.is_ours then 'stale' when x.is_moved then 'moved' else 'busy' end;
    if outcome = 'ready' then
      perform ragdb.make_ready(x.document_id, x.revision);
    end if;
    return next;
  end loop;
end
$function$;
comment on function ragdb.store_batch(bigint[], uuid[], bigint[], double precision[], bigint[], text, interval) is
  'Stores vectors of several claimed jobs and makes the finished ones ready, in one transaction; says what became of each.';
