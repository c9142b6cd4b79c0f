-- Filling the sets that are not active, for workers: claim some documents that lack vectors of a set, embed outside any
-- transaction, store with the claim's token. Nothing here waits for a lock that a writer of documents holds.

-- The sets that have something to fill now.
create or replace function ragdb.sets_to_fill(only_collection text default null)
returns table (collection text, model_id bigint, model text, dims integer)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
  select c.name, m.model_id, m.name, m.dims
    from ragdb.vector_set s
    join ragdb.collection c using (collection_id)
    join ragdb.embedding_model m on m.model_id = s.model_id
   where (only_collection is null or c.name = only_collection)
     and (s.scan_after is not null
          or exists (select from ragdb.vector_gap g
                      where g.collection_id = s.collection_id and g.model_id = s.model_id and g.run_after <= statement_timestamp()))
   order by s.collection_id, s.model_id
$function$;
comment on function ragdb.sets_to_fill(text) is 'The vector sets that have something to fill now.';

-- Looks through the next documents that were ready before the set was added, and notes those that lack vectors; false where
-- there are no more, or another worker does it.
create or replace function ragdb.scan_for_gaps(collection_id bigint, model_id bigint, how_many integer default 1000) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
as $function$
declare
  after bigint;
  last bigint;
begin
  select s.scan_after into after from ragdb.vector_set s
   where s.collection_id = scan_for_gaps.collection_id and s.model_id = scan_for_gaps.model_id and s.scan_after is not null
     for update skip locked;
  if not found then
    return false;
  end if;
  with next as materialized (
    select d.document_id, d.collection_id, d.ready_revision
      from ragdb.document d
     where d.document_id > after
     order by d.document_id
     limit how_many),
  noted as (
    insert into ragdb.vector_gap (collection_id, model_id, document_id)
    select n.collection_id, scan_for_gaps.model_id, n.document_id
      from next n
     where n.collection_id = scan_for_gaps.collection_id
       and exists (select from ragdb.chunk_place p
                    where p.document_id = n.document_id and p.revision = n.ready_revision
                      and not exists (select from ragdb.embedding e where e.chunk_id = p.chunk_id and e.model_id = scan_for_gaps.model_id))
     order by n.document_id
    on conflict do nothing)
  select case when count(*) = how_many then max(n.document_id) end into last from next n;
  update ragdb.vector_set s set scan_after = last
   where s.collection_id = scan_for_gaps.collection_id and s.model_id = scan_for_gaps.model_id;
  return true;
end
$function$;
comment on function ragdb.scan_for_gaps(bigint, bigint, integer) is 'Looks through the next documents of a set that was added, in the order of their ids.';

-- Claims documents that lack vectors, together of about `chunks` chunks (one larger document in parts of that size), and
-- returns the chunks to embed with their text. What any chunk of the same text has a vector for is copied at once. A row
-- without a chunk is a document that is complete by now. All rows have the token that the vectors are stored with.
create or replace function ragdb.claim_gaps(collection text, model_id bigint, chunks integer default 256, lease interval default '5 minutes')
returns table (lease_token uuid, document_id bigint, chunk_id bigint, body text, copied bigint)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
#variable_conflict use_column
declare
  c ragdb.collection := ragdb.known_collection(collection);
  token uuid := gen_random_uuid();
  -- a value, that the index is searched by: what is leased or has failed is not even looked at
  moment timestamptz := clock_timestamp();
  claimed bigint[];
  n_copied bigint;
begin
  loop
    with picked as (
      select g.document_id, g.after_ordinal
        from ragdb.vector_gap g
       where g.collection_id = c.collection_id and g.model_id = claim_gaps.model_id and g.run_after <= moment
       order by g.run_after, g.document_id
       limit least(chunks, 256)
         for update skip locked),
    sized as (
      select p.document_id, p.after_ordinal, d.ready_revision,
             coalesce(sum(coalesce(d.n_chunks, 0)) over (order by p.document_id rows between unbounded preceding and 1 preceding), 0) as before
        from picked p left join ragdb.document d on d.document_id = p.document_id),
    taken as (
      select s.document_id, u.upto
        from sized s
       cross join lateral (
         select case when count(*) = chunks then max(x.ordinal) end as upto
           from (select p.ordinal from ragdb.chunk_place p
                  where p.document_id = s.document_id and p.revision = s.ready_revision and p.ordinal > s.after_ordinal
                  order by p.ordinal limit chunks) x) u
       where s.before < chunks),
    claims as (
      update ragdb.vector_gap g
         set lease_token = token, run_after = clock_timestamp() + lease, upto_ordinal = t.upto
        from taken t
       where g.document_id = t.document_id and g.model_id = claim_gaps.model_id
      returning g.document_id)
    select coalesce(array_agg(x.document_id), '{}') into claimed from claims x;
    exit when claimed <> '{}' or not ragdb.scan_for_gaps(c.collection_id, claim_gaps.model_id);
  end loop;

  with todo as materialized (
    select p.chunk_id, k.text_hash
      from ragdb.vector_gap g
      join ragdb.document d on d.document_id = g.document_id
      join ragdb.chunk_place p on p.document_id = d.document_id and p.revision = d.ready_revision
       and p.ordinal > g.after_ordinal and p.ordinal <= coalesce(g.upto_ordinal, 2147483647)
      join ragdb.chunk k on k.chunk_id = p.chunk_id
     where g.document_id = any (claimed) and g.model_id = claim_gaps.model_id
       and not exists (select from ragdb.embedding e where e.chunk_id = p.chunk_id and e.model_id = claim_gaps.model_id)),
  -- by key, and not through a lock on documents: what is being deleted is waited for by nobody here
  twins as materialized (
    select t.chunk_id, known.dims, known.v
      from todo t
     cross join lateral (
       select e.dims, e.v
         from ragdb.chunk twin join ragdb.embedding e on e.chunk_id = twin.chunk_id and e.model_id = claim_gaps.model_id
        where twin.text_hash = t.text_hash and twin.chunk_id <> t.chunk_id
        limit 1) known)
  insert into ragdb.embedding (chunk_id, model_id, dims, v)
  select w.chunk_id, claim_gaps.model_id, w.dims, w.v
    from twins w
   where w.chunk_id in (select k.chunk_id from ragdb.chunk k
                         where k.document_id in (select d.document_id from ragdb.document d where d.document_id = any (claimed)
                                                    for share skip locked))
  on conflict do nothing;
  get diagnostics n_copied = row_count;

  return query
  select token, x.document_id, t.chunk_id, t.body, n_copied
    from unnest(claimed) as x(document_id)
    left join ragdb.vector_gap g on g.document_id = x.document_id and g.model_id = claim_gaps.model_id
    left join ragdb.document d on d.document_id = x.document_id
    left join lateral (
      select p.ordinal, k.chunk_id, case when k.context = '' then k.content else k.context || E'\n' || k.content end as body
        from ragdb.chunk_place p join ragdb.chunk k on k.chunk_id = p.chunk_id
       where p.document_id = d.document_id and p.revision = d.ready_revision
         and p.ordinal > g.after_ordinal and p.ordinal <= coalesce(g.upto_ordinal, 2147483647)
         and not exists (select from ragdb.embedding e where e.chunk_id = p.chunk_id and e.model_id = claim_gaps.model_id)) t on true
   order by x.document_id, t.ordinal;
end
$function$;
comment on function ragdb.claim_gaps(text, bigint, integer, interval) is
  'Claims documents that lack vectors of a set and returns their chunks to embed; copies what a chunk of the same text has.';

-- Stores the vectors of a claim: `numbers` one after the other, in the order of chunk_ids, all chunks that were claimed of
-- these documents. What has become stale meanwhile (a newer text, a lease that another took, a set that was dropped) is
-- passed over. Returns how many were stored, and the documents that a writer holds just now: try these again.
create or replace function ragdb.store_gaps(
  model_id bigint, lease_token uuid, document_ids bigint[], chunk_ids bigint[], numbers double precision[],
  out stored bigint, out busy bigint[])
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  m ragdb.embedding_model;
  free bigint[];
  held bigint[];
begin
  stored := 0;
  busy := '{}';
  select e.* into m from ragdb.embedding_model e where e.model_id = store_gaps.model_id;
  if not found then
    return;
  end if;
  if cardinality(numbers) <> cardinality(chunk_ids) * m.dims then
    raise exception '% numbers for % chunks; model "%" has % dimensions', cardinality(numbers), cardinality(chunk_ids), m.name, m.dims
      using errcode = 'RD003', hint = 'Look at what the embedder returned.';
  end if;
  -- chunks come and go under their document's lock
  free := array(select d.document_id from ragdb.document d where d.document_id = any (document_ids) for share skip locked);
  held := array(select g.document_id from ragdb.vector_gap g
                 where g.document_id = any (free) and g.model_id = m.model_id and g.lease_token = store_gaps.lease_token
                   for update skip locked);
  insert into ragdb.embedding (chunk_id, model_id, dims, v)
  select u.id, m.model_id, m.dims, ragdb.checked_vector(numbers[(u.n - 1) * m.dims + 1 : u.n * m.dims], m.dims, m.name)
    from unnest(chunk_ids) with ordinality u(id, n)
    join ragdb.chunk k on k.chunk_id = u.id
   where k.document_id = any (held)
  on conflict do nothing;
  get diagnostics stored = row_count;
  update ragdb.vector_gap g
     set after_ordinal = g.upto_ordinal, upto_ordinal = null, lease_token = null, run_after = clock_timestamp(), attempts = 0, last_error = null
   where g.document_id = any (held) and g.model_id = m.model_id and g.upto_ordinal is not null;
  -- the row just changed has no token any more
  delete from ragdb.vector_gap g
   where g.document_id = any (held) and g.model_id = m.model_id and g.lease_token = store_gaps.lease_token;
  -- a document that is gone lacks nothing
  delete from ragdb.vector_gap g
   where g.document_id = any (document_ids) and g.model_id = m.model_id and g.lease_token = store_gaps.lease_token
     and not exists (select from ragdb.document d where d.document_id = g.document_id);
  busy := array(select g.document_id from ragdb.vector_gap g
                 where g.document_id = any (document_ids) and g.model_id = m.model_id and g.lease_token = store_gaps.lease_token
                 order by g.document_id);
end
$function$;
comment on function ragdb.store_gaps(bigint, uuid, bigint[], bigint[], double precision[]) is
  'Stores the vectors of a claim; what has become stale is passed over. Returns how many, and the documents to try again.';

-- Gives claimed documents back: due again after `delay`, with the reason where they failed.
create or replace function ragdb.release_gaps(model_id bigint, lease_token uuid, document_ids bigint[], delay interval default '0', reason text default null)
returns void
language sql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
  update ragdb.vector_gap g
     set lease_token = null, upto_ordinal = null, run_after = clock_timestamp() + delay,
         attempts = g.attempts + case when reason is null then 0 else 1 end, last_error = coalesce(reason, g.last_error)
   where g.document_id = any (document_ids) and g.model_id = release_gaps.model_id and g.lease_token = release_gaps.lease_token
$function$;
comment on function ragdb.release_gaps(bigint, uuid, bigint[], interval, text) is 'Gives claimed documents of a set back, with the reason where they failed.';
