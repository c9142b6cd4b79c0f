-- The same documents once more, cut in another way: what `ragdb eval sweep` compares chunk sizes by.
--   select ragdb.copy_collection('help', 'help~markdown:128', 'markdown:128');
-- Makes the collection with the other's model and settings, and queues, in pages by uri, what differs; what the other has no
-- more is deleted. Repeat it with after_uri => last_uri until last_uri is null; workers then cut and embed, or
-- ragdb.ingest.documents.drain(). Vectors of texts that are there already are not made again.
create or replace function ragdb.copy_collection(collection text, "into" text, chunker text, after_uri text default '', how_many integer default 500)
returns table (last_uri text, queued bigint, deleted bigint)
language plpgsql rows 1
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  d record;
  made record;
begin
  if c.name = "into" then
    raise exception 'collection % cannot be copied into itself', quote_literal(c.name) using errcode = 'RD004';
  end if;
  if how_many is null or how_many < 1 then
    raise exception 'how_many is %; it is at least 1', coalesce(how_many::text, 'null') using errcode = 'RD004';
  end if;
  if coalesce("into", '') = '' or after_uri is null then
    raise exception 'into and after_uri are texts, not null; into is not empty'
      using errcode = 'RD004', hint = 'Begin without after_uri, and end where last_uri is null.';
  end if;
  -- what is not in the one is deleted in the other: not of a collection that people fill
  if not starts_with("into", c.name || '~') and exists (
       select from ragdb.document x join ragdb.collection y on y.collection_id = x.collection_id
        where y.name = "into" and not exists (
          select from ragdb.document o where o.collection_id = c.collection_id and o.uri = x.uri)) then
    raise exception 'collection % has documents of its own, which a copy of % would delete', quote_literal("into"), quote_literal(c.name)
      using errcode = 'RD004', hint = pg_catalog.format('Copy into a new collection, or into one whose name begins with %L.', c.name || '~');
  end if;
  perform ragdb.create_collection("into", c.active_model_id, pg_catalog.jsonb_build_object(
    'text_search_config', c.text_search_config, 'analyzer', c.analyzer, 'chunker', chunker, 'k1', c.k1, 'b', c.b,
    'pivot_length', c.pivot_length, 'exact_limit', c.exact_limit, 'candidate_budget', c.candidate_budget));
  update ragdb.collection x set fusion = c.fusion where x.name = "into" and x.fusion is distinct from c.fusion;
  queued := 0;
  deleted := 0;
  if after_uri = '' then
    for d in
      select x.uri from ragdb.document x join ragdb.collection y on y.collection_id = x.collection_id
       where y.name = "into" and not exists (
         select from ragdb.document o where o.collection_id = c.collection_id and o.uri = x.uri and o.ready_revision > 0)
       order by x.uri
    loop
      perform ragdb.delete_document("into", d.uri);
      deleted := deleted + 1;
    end loop;
  end if;
  for d in
    select x.uri, x.title, x.status, x.language, x.owner, x.version, x.updated_at, x.review_after, x.metadata, r.content, r.media_type, r.pages
      from ragdb.document x
      join ragdb.document_revision r on r.document_id = x.document_id and r.revision = x.ready_revision
     where x.collection_id = c.collection_id and x.uri > after_uri and x.ready_revision > 0
     order by x.uri
     limit how_many
  loop
    select p.changed into made from ragdb.put_document("into", pg_catalog.jsonb_build_object(
      'uri', d.uri, 'content', d.content, 'title', d.title, 'status', d.status, 'language', d.language, 'owner', d.owner, 'version', d.version,
      'updated_at', d.updated_at, 'review_after', d.review_after, 'metadata', d.metadata, 'media_type', d.media_type, 'pages', to_jsonb(d.pages)),
      '{"notify": false}') p;
    queued := queued + coalesce(made.changed, false)::integer;
    last_uri := d.uri;
  end loop;
  return next;
end
$function$;
comment on function ragdb.copy_collection(text, text, text, text, integer) is
  'Queues the documents of a collection once more in another, cut by another chunker, a page by uri at a time.';

-- Deletes a collection with all of its documents, a batch of them at a time: repeat it until left_over is 0.
--   select * from ragdb.drop_collection('help~markdown:128');
-- Its runs stay, without their quotes. A table that is watched for it keeps it.
create or replace function ragdb.drop_collection(collection text, how_many integer default 500)
returns table (deleted bigint, left_over bigint)
language plpgsql rows 1
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  d record;
begin
  if how_many is null or how_many < 1 then
    raise exception 'how_many is %; it is at least 1', coalesce(how_many::text, 'null') using errcode = 'RD004';
  end if;
  if exists (select from ragdb.watched_table w where w.collection_id = c.collection_id) then
    raise exception 'collection % follows a table', quote_literal(c.name)
      using errcode = 'RD004', hint = 'First: select ragdb.unwatch_table(...), see ragdb.watched_tables.';
  end if;
  deleted := 0;
  for d in
    -- by id, as ragdb.record_run() and ragdb.record_eval_result() hold them
    select x.uri from (select y.uri, y.document_id from ragdb.document y where y.collection_id = c.collection_id order by y.uri limit how_many) x
     order by x.document_id
  loop
    perform ragdb.delete_document(c.name, d.uri);
    deleted := deleted + 1;
  end loop;
  select count(*) into left_over from ragdb.document x where x.collection_id = c.collection_id;
  if left_over = 0 then
    delete from ragdb.collection x where x.collection_id = c.collection_id;
  end if;
  return next;
end
$function$;
comment on function ragdb.drop_collection(text, integer) is
  'Deletes a collection and its documents, a batch a call; repeat it until left_over is 0.';
