-- Writing a document. The new text becomes a pending revision; the old one answers until ragdb.make_ready() flips.

-- Line ends as LF, no byte order mark: a file whose line ends alone changed is unchanged.
create or replace function ragdb.clean_text(body text) returns text
language sql immutable parallel safe
set search_path from current
as $function$
  select replace(replace(regexp_replace(body, '^\ufeff+', ''), E'\r\n', E'\n'), E'\r', E'\n')
$function$;
comment on function ragdb.clean_text(text) is 'Text with LF line ends and without a byte order mark.';

create or replace function ragdb.content_hash(title text, content text) returns bytea
language sql immutable parallel safe
set search_path from current
as $function$
  select sha256(convert_to(coalesce(title, '') || chr(31) || content, 'UTF8'))
$function$;
comment on function ragdb.content_hash(text, text) is 'What tells whether a document''s text is still the same: sha256 of title and content.';

-- `document`: {"uri", "content", "title"?, "status"?, "language"?, "owner"?, "version"?, "updated_at"?, "review_after"?,
-- "metadata"?, "source"?, "source_state"?, "warnings"?, "found"?, "media_type"?, "pages"?, "chunking"?, "sections"?: [...], "chunks"?: [...]}; see ragdb.write_chunks().
-- A key that is not there (or null) keeps what the document has, but for source_state, which belongs to the text. "found" tells which columns the text itself says:
-- {"status": {"value", "rule", "line"?, "text"?, "overruled"?}}; see ragdb.settled(). Without "chunks" the worker cuts the text.
-- enable_seqscan off, here and in the functions of the queue: plans are kept, and one made while the tables are empty
-- would read them whole for every document of a first load.
-- options: {"queue": true} always leaves the document to its job; {"notify": false} wakes no worker, for whoever embeds it himself.
-- The same text again costs one SELECT, and one UPDATE if a column differs. Returns ingest_state `ready` at once
-- where nothing has to be embedded.
create or replace function ragdb.put_document(collection text, document jsonb, options jsonb default '{}')
returns table (document_id bigint, uri text, revision integer, ingest_state text, chunks integer, reused integer, changed boolean, updated boolean)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  d ragdb.document;
  next ragdb.document;
  given_uri text := document ->> 'uri';
  body text := ragdb.clean_text(document ->> 'content');
  -- a document keeps its title unless told otherwise
  new_title text;
  new_hash bytea;
  current_chunking text;
  rev integer;
  n_written integer := 0;
  n_reused integer := 0;
  renewed boolean := false;
  v_said jsonb;                                         -- what waits with the text
begin
  if jsonb_typeof(document -> 'metadata') not in ('object', 'null') then
    raise exception 'metadata of "%" is %, not an object', given_uri, jsonb_typeof(document -> 'metadata')
      using errcode = 'RD004', hint = 'Write it like {"tenant": 7}.';
  end if;
  if document ->> 'status' not in ('active', 'draft', 'archived') then
    raise exception 'status of "%" is "%"', given_uri, document ->> 'status'
      using errcode = 'RD004', hint = 'It is active, draft or archived.';
  end if;
  if coalesce(given_uri, '') = '' or body is null then
    raise exception 'a document needs a uri and a content' using errcode = 'RD004',
      hint = 'select * from ragdb.submit_document(''help'', ''article/1'', ''text of the article'')';
  end if;

  if document -> 'found' is not null and jsonb_typeof(document -> 'found') not in ('object', 'null') then
    raise exception 'found of "%" is %, not an object', given_uri, jsonb_typeof(document -> 'found')
      using errcode = 'RD004', hint = 'Write it like {"status": {"value": "draft", "rule": "by hand"}}.';
  end if;

  if octet_length(given_uri) > 2000 then
    raise exception 'the uri "%..." has % bytes', left(given_uri, 60), octet_length(given_uri)
      using errcode = 'RD004', hint = 'A uri has at most 2,000 bytes.';
  end if;

  -- Unchanged and nothing on its way: no lock, no write. Everything else reads the row again under its lock, or the text
  -- that a worker makes ready meanwhile would be taken for the one that is there.
  select * into d from ragdb.document x where x.collection_id = c.collection_id and x.uri = given_uri;
  if not found or d.pending_revision is not null or d.ingest_state <> 'ready'
     or d.content_hash is distinct from ragdb.content_hash(coalesce(document ->> 'title', d.title), body) then
    loop
      insert into ragdb.document (collection_id, uri) values (c.collection_id, given_uri)
      on conflict on constraint document_collection_id_uri_key do nothing;
      select * into d from ragdb.document x where x.collection_id = c.collection_id and x.uri = given_uri for update;
      exit when found;  -- else it was deleted in between: once more
    end loop;
  end if;

  new_title := coalesce(document ->> 'title', d.title);
  new_hash := ragdb.content_hash(new_title, body);
  -- what a new text says about itself holds for that text: while the old one answers, its own words do
  if d.ready_revision > 0 and jsonb_typeof(document -> 'found') = 'object' and d.content_hash is distinct from new_hash then
    v_said := ragdb.said_by_text(document);
    document := document - array(select jsonb_object_keys(v_said));
  end if;

  next := ragdb.document_columns(d, document);
  if next is distinct from d then
    update ragdb.document x
       set (status, language, owner, version, updated_at, review_after, metadata, source, source_state, warnings, found) =
           (select g.status, g.language, g.owner, g.version, g.updated_at, g.review_after, g.metadata, g.source, g.source_state, g.warnings, g.found
              from ragdb.document_columns(x, document) g)
     where x.document_id = d.document_id;
    -- that its file was touched is no change of a document
    next.source_state := d.source_state;
    renewed := d.ready_revision > 0 and next is distinct from d;
  end if;

  select r.chunking into current_chunking
    from ragdb.document_revision r where r.document_id = d.document_id and r.revision = d.ready_revision;
  if d.ready_revision > 0 and d.content_hash = new_hash
     and current_chunking is not distinct from coalesce(document ->> 'chunking', current_chunking) then
    if d.pending_revision is not null or d.ingest_state <> 'ready' then
      -- back to the text that answers: what was being prepared is not wanted any more
      perform ragdb.drop_pending(d.document_id);
      update ragdb.document x set ingest_state = 'ready', last_error = null where x.document_id = d.document_id;
    end if;
    return query select d.document_id, d.uri, d.ready_revision, 'ready'::text, d.n_chunks, d.n_chunks, false, renewed;
    return;
  end if;

  if d.pending_revision is not null and exists (
       select from ragdb.document_revision r join ragdb.job j on j.document_id = r.document_id and j.revision = r.revision
        where r.document_id = d.document_id and r.revision = d.pending_revision and r.content_hash = new_hash
          and (r.chunking is not distinct from (document ->> 'chunking')
               or r.chunking is null and jsonb_typeof(document -> 'chunks') is distinct from 'array')) then
    update ragdb.document_revision r set said = v_said
     where r.document_id = d.document_id and r.revision = d.pending_revision and v_said is not null;
    -- the same text waits already; a job that failed, or waits to be tried again, gets its chance now
    update ragdb.job j set state = 'queued', attempts = 0, lost = 0, run_after = now(), last_error = null, failed_at = null
     where j.document_id = d.document_id and (j.state = 'failed' or j.state = 'queued' and j.run_after > now());
    if found then
      if coalesce((options ->> 'notify')::boolean, true) then
        perform ragdb.wake_workers(c.name);
      end if;
      update ragdb.document x set ingest_state = 'queued', last_error = null where x.document_id = d.document_id;
    end if;
    return query
    select d.document_id, d.uri, d.pending_revision, x.ingest_state,
           (select count(*)::integer from ragdb.chunk_place p where p.document_id = d.document_id and p.revision = d.pending_revision), 0, false, renewed
      from ragdb.document x where x.document_id = d.document_id;
    return;
  end if;

  -- cut in another way: the row may not be locked yet
  select * into d from ragdb.document x where x.document_id = d.document_id for update;
  if not found then
    raise exception 'document "%" was deleted meanwhile', given_uri using errcode = 'RD006', hint = 'Add it again.';
  end if;
  rev := greatest(d.ready_revision, coalesce(d.pending_revision, 0)) + 1;
  perform ragdb.drop_pending(d.document_id);
  insert into ragdb.document_revision (document_id, revision, title, content, content_hash, said, media_type, pages)
  values (d.document_id, rev, new_title, body, new_hash, v_said, document ->> 'media_type',
          case when jsonb_typeof(document -> 'pages') = 'array' then array(select jsonb_array_elements_text(document -> 'pages')::integer) end);
  update ragdb.document x
     set pending_revision = rev, ingest_state = 'queued', last_error = null,
         title = case when x.ready_revision = 0 then new_title else x.title end
   where x.document_id = d.document_id;

  if jsonb_typeof(document -> 'chunks') = 'array' then
    select w.written, w.reused into n_written, n_reused
      from ragdb.write_chunks(d.document_id, rev, document ->> 'chunking', coalesce(document -> 'sections', '[]'), document -> 'chunks') w;
    if not exists (select from ragdb.chunks_to_embed(d.document_id, rev)) and not coalesce((options ->> 'queue')::boolean, false) then
      perform ragdb.make_ready(d.document_id, rev);
      return query select d.document_id, d.uri, rev, 'ready'::text, n_written, n_reused, true, renewed;
      return;
    end if;
  end if;
  insert into ragdb.job (document_id, collection_id, revision) values (d.document_id, c.collection_id, rev);
  if coalesce((options ->> 'notify')::boolean, true) then
    perform ragdb.wake_workers(c.name);
  end if;
  return query select d.document_id, d.uri, rev, 'queued'::text, n_written, n_reused, true, renewed;
end
$function$;
comment on function ragdb.put_document(text, jsonb, jsonb) is
  'Writes a document with its chunks as a pending revision and queues what has to be embedded; the same text again costs nothing.';

-- The same with the text beside the document: a large one is then encoded once, and not a second time as JSON.
create or replace function ragdb.put_text(collection text, content text, document jsonb, options jsonb default '{}')
returns table (document_id bigint, uri text, revision integer, ingest_state text, chunks integer, reused integer, changed boolean, updated boolean)
language sql
set search_path from current
as $function$
  select * from ragdb.put_document(collection, document || pg_catalog.jsonb_build_object('content', content), options)
$function$;
comment on function ragdb.put_text(text, text, jsonb, jsonb) is 'ragdb.put_document with the text beside the document.';
