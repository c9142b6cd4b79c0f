-- Vector sets: which models' vectors a collection keeps complete. One of them is active: what searches read, and what
-- decides when a document is ready. The others are filled by workers (sql/functions/fill_vectors.sql) while that one serves:
--   select ragdb.add_vector_set('help', ragdb.register_model('openai:text-embedding-3-small', 1536));   -- ragdb embedder add
--   select * from ragdb.vector_sets();                                                                   -- ragdb embedder list
--   select * from ragdb.activate_vector_set('help', 'openai:text-embedding-3-small');                    -- and back by the old name
-- A set is behind while ready documents lack vectors of it: then it is not searched (the active one always is).

create or replace function ragdb.collection_trigger() returns trigger
language plpgsql
set search_path from current
as $function$
begin
  -- one that was made active by hand is looked through: what lacks vectors of it gets them
  insert into ragdb.vector_set (collection_id, model_id, scan_after)
  values (new.collection_id, new.active_model_id, case when tg_op = 'UPDATE' and old.active_model_id is not null then 0 end)
  on conflict do nothing;
  return null;
end
$function$;
comment on function ragdb.collection_trigger() is 'The active model of a collection is always one of its vector sets.';

create or replace trigger collection_active_set
  after insert or update of active_model_id on ragdb.collection
  for each row when (new.active_model_id is not null) execute function ragdb.collection_trigger();
comment on trigger collection_active_set on ragdb.collection is 'The active model is always one of the collection''s vector sets.';

create or replace function ragdb.document_gone_trigger() returns trigger
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
begin
  delete from ragdb.vector_gap g where g.document_id = old.document_id;
  return null;
end
$function$;
comment on function ragdb.document_gone_trigger() is 'A deleted document lacks no vectors.';

create or replace trigger document_gone
  after delete on ragdb.document
  for each row execute function ragdb.document_gone_trigger();
comment on trigger document_gone on ragdb.document is 'A deleted document lacks no vectors.';

-- Adds a set; false where the collection has it already. Nothing changes for searches. The collection's row is held for a
-- moment: a document becomes ready either before, and is looked through, or after, and notes itself what it lacks.
create or replace function ragdb.add_vector_set(collection text, model_id bigint) returns boolean
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
begin
  perform from ragdb.collection x where x.collection_id = c.collection_id for no key update;
  insert into ragdb.vector_set (collection_id, model_id, scan_after) values (c.collection_id, add_vector_set.model_id, 0)
  on conflict do nothing;
  return found;
end
$function$;
comment on function ragdb.add_vector_set(text, bigint) is 'Adds a vector set to a collection, which workers then fill; false where it is there already.';

-- Whether ready documents lack vectors of a set; null where the collection has no such set.
create or replace function ragdb.set_is_behind(collection_id bigint, model_id bigint) returns boolean
language plpgsql stable
set search_path from current
as $function$
begin
  return (
    select s.scan_after is not null
           or exists (select from ragdb.vector_gap g where g.collection_id = s.collection_id and g.model_id = s.model_id)
      from ragdb.vector_set s
     where s.collection_id = set_is_behind.collection_id and s.model_id = set_is_behind.model_id);
end
$function$;
comment on function ragdb.set_is_behind(bigint, bigint) is 'Whether ready documents lack vectors of a set; null where there is no such set.';

-- How far it is behind, for people, counted no further than a search has time for.
create or replace function ragdb.behind_note(collection_id bigint, model_id bigint, model text) returns text
language plpgsql stable
set search_path from current
as $function$
declare
  n bigint := (select count(*) from (select from ragdb.vector_gap g
                                      where g.collection_id = behind_note.collection_id and g.model_id = behind_note.model_id limit 1000) x);
  scanning boolean := (select s.scan_after is not null from ragdb.vector_set s
                        where s.collection_id = behind_note.collection_id and s.model_id = behind_note.model_id);
begin
  return pg_catalog.format('the vector set of %s is behind by %s%s', model, case when scanning or n = 1000 then 'more than ' else '' end,
                           case n when 1 then '1 document' else n || ' documents' end);
end
$function$;
comment on function ragdb.behind_note(bigint, bigint, text) is 'How far a vector set is behind, as a sentence; counted to 1,000 documents.';

-- Chunks of ready documents that lack a vector of a set. Reads what may lack them, and no more: of a complete set nothing.
create or replace function ragdb.missing_vectors(collection_id bigint, model_id bigint) returns bigint
language plpgsql stable
set search_path from current
as $function$
declare
  scan bigint := (select s.scan_after from ragdb.vector_set s
                   where s.collection_id = missing_vectors.collection_id and s.model_id = missing_vectors.model_id);
begin
  return (
    select count(*)
      from (select g.document_id from ragdb.vector_gap g
             where g.collection_id = missing_vectors.collection_id and g.model_id = missing_vectors.model_id
            union
            select d.document_id from ragdb.document d
             where d.collection_id = missing_vectors.collection_id and d.document_id > scan) x
      join ragdb.document d using (document_id)
      join ragdb.chunk_place p on p.document_id = d.document_id and p.revision = d.ready_revision
     where not exists (select from ragdb.embedding e where e.chunk_id = p.chunk_id and e.model_id = missing_vectors.model_id));
end
$function$;
comment on function ragdb.missing_vectors(bigint, bigint) is 'How many chunks of ready documents lack a vector of a set.';

-- Documents that have just become ready note which sets, beside the active one, lack vectors of theirs; what was noted
-- before is of an older text, and so is work under way for it.
create or replace function ragdb.note_gaps(collection_id bigint, document_ids bigint[]) returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
begin
  delete from ragdb.vector_gap g where g.document_id = any (document_ids);
  insert into ragdb.vector_gap (collection_id, model_id, document_id)
  select s.collection_id, s.model_id, d.document_id
    from ragdb.vector_set s
    join ragdb.collection c on c.collection_id = s.collection_id and c.active_model_id is distinct from s.model_id
    join ragdb.document d on d.document_id = any (document_ids) and d.collection_id = s.collection_id
   where s.collection_id = note_gaps.collection_id
     and exists (select from ragdb.chunk_place p
                  where p.document_id = d.document_id and p.revision = d.ready_revision
                    and not exists (select from ragdb.embedding e where e.chunk_id = p.chunk_id and e.model_id = s.model_id))
   order by d.document_id, s.model_id
  on conflict do nothing;
end
$function$;
comment on function ragdb.note_gaps(bigint, bigint[]) is 'Notes which of the sets that are not active lack vectors of documents that have just become ready.';

-- For who writes ready documents by other ways than ragdb.make_ready() (COPY): holds the active model until the end of the
-- transaction, and refuses vectors of another.
create or replace function ragdb.hold_active_model(collection_id bigint, model_id bigint) returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  active bigint;
begin
  select c.active_model_id into active from ragdb.collection c where c.collection_id = hold_active_model.collection_id for share;
  if active is distinct from model_id then
    raise exception 'these vectors are of "%", but "%" is active by now',
        (select m.name from ragdb.embedding_model m where m.model_id = hold_active_model.model_id),
        (select m.name from ragdb.embedding_model m where m.model_id = active)
      using errcode = 'RD010', hint = 'Begin again, with the active model.';
  end if;
end
$function$;
comment on function ragdb.hold_active_model(bigint, bigint) is 'Holds a collection''s active model to the end of the transaction; refused where it is another one.';

-- The models that a collection may be searched by, for those who read it.
create or replace function ragdb.collection_models(collection text)
returns table (model_id bigint, model text, dims integer, evidence_floor double precision, active boolean, behind boolean)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
  select m.model_id, m.name, m.dims, m.evidence_floor, m.model_id = c.active_model_id, ragdb.set_is_behind(c.collection_id, m.model_id)
    from ragdb.collection c
    join ragdb.vector_set s on s.collection_id = c.collection_id
    join ragdb.embedding_model m on m.model_id = s.model_id
   where c.name = collection_models.collection and ragdb.read_limits(c.collection_id) is distinct from '[]'
   order by m.model_id is distinct from c.active_model_id, m.model_id
$function$;
comment on function ragdb.collection_models(text) is 'The vector sets of a collection for those who read it: model, whether it is the active one, whether it is behind.';

-- Every set: what it lacks, and what failed. Reads what may lack vectors; of complete sets nothing.
create or replace function ragdb.vector_sets(only_collection text default null)
returns table (collection text, model_id bigint, model text, dims integer, active boolean, missing bigint, failing bigint, last_error text, added_at timestamptz)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select c.name, m.model_id, m.name, m.dims, m.model_id = c.active_model_id,
         case when ragdb.set_is_behind(c.collection_id, m.model_id) then ragdb.missing_vectors(c.collection_id, m.model_id) else 0 end,
         f.failing, f.last_error, s.created_at
    from ragdb.vector_set s
    join ragdb.collection c using (collection_id)
    join ragdb.embedding_model m on m.model_id = s.model_id
   cross join lateral (
     select count(*) as failing, max(g.last_error) as last_error
       from ragdb.vector_gap g
      where g.collection_id = s.collection_id and g.model_id = s.model_id and g.last_error is not null) f
   where only_collection is null or c.name = only_collection
   order by c.name, m.model_id
$function$;
comment on function ragdb.vector_sets(text) is 'The vector sets of the collections: how many chunks each lacks, how many documents of it failed, and why.';

-- Makes a set the one that searches read, from the next question on. One row changes; the other way round is the same call
-- with the old name. Refused while the set is behind, unless `force`: then documents that lack vectors of it are found by
-- their words alone until workers have filled it. The collection's row is held: documents that become ready at the same
-- moment have done so before, and were counted, or need the vectors of the new model.
create or replace function ragdb.activate_vector_set(collection text, model text, force boolean default false)
returns table (was text, active text, missing bigint)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  m ragdb.embedding_model;
begin
  select e.* into m
    from ragdb.vector_set s join ragdb.embedding_model e on e.model_id = s.model_id
   where s.collection_id = c.collection_id and e.name = activate_vector_set.model;
  if not found then
    raise exception 'collection "%" has no vector set of "%"', c.name, model
      using errcode = 'RD004', hint = pg_catalog.format('It has: %s. One is added by: ragdb embedder add',
        coalesce((select string_agg(e.name, ', ' order by e.name) from ragdb.vector_set s join ragdb.embedding_model e on e.model_id = s.model_id
                   where s.collection_id = c.collection_id), 'none'));
  end if;
  missing := 0;
  -- counted before the row is held
  if ragdb.set_is_behind(c.collection_id, m.model_id) then
    missing := ragdb.missing_vectors(c.collection_id, m.model_id);
  end if;
  select x.* into c from ragdb.collection x where x.collection_id = c.collection_id for no key update;
  if c.active_model_id <> m.model_id and not coalesce(force, false) and ragdb.set_is_behind(c.collection_id, m.model_id) is not false
     and (missing > 0 or ragdb.missing_vectors(c.collection_id, m.model_id) > 0) then
    raise exception 'the vector set of "%" is behind in collection "%": % chunks have no vector of it yet', m.name, c.name,
        case when missing > 0 then missing::text else 'some' end
      using errcode = 'RD004', hint = pg_catalog.format('Workers fill it, or: ragdb embedder fill %s --collection %s. To activate it as it is: --force', m.name, c.name);
  end if;
  was := (select e.name from ragdb.embedding_model e where e.model_id = c.active_model_id);
  active := m.name;
  update ragdb.collection x set active_model_id = m.model_id where x.collection_id = c.collection_id and x.active_model_id is distinct from m.model_id;
  return next;
end
$function$;
comment on function ragdb.activate_vector_set(text, text, boolean) is
  'Makes a vector set the one that searches read; refused while it is behind, unless forced. Undone by the same call with the old name.';
