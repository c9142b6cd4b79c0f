-- Sections and chunks of a pending revision.
--   sections: [{"ordinal", "parent": ordinal or null, "heading", "level", "path": [...], "start", "end"}]
--   chunks:   [{"ordinal", "content", "context", "start", "end", "page"?, "section": ordinal or null, "label",
--              "lexemes"?: [words, in order]}]; lexemes where the collection's analyzer is external, and only there
-- A long document comes in several calls, in order, each but the last with `more`: its sections with the first one. Chunk 0
-- begins anew whatever an earlier attempt left. The revision counts as cut after the last call.
-- A chunk whose text the ready revision has already keeps its row and its vector (matched by text and by how often
-- it has come before); new text that any chunk has been embedded for gets a copy of that vector, of every set that is kept complete.
create or replace function ragdb.write_chunks(
  document_id bigint, revision integer, chunking text, sections jsonb, chunks jsonb, more boolean default false,
  out written integer, out reused integer)
language plpgsql
set search_path from current
as $function$
declare
  ready integer;
  models bigint[];                                      -- of the sets that are kept complete
  col record;
  first_ordinal integer := (select min(g.ordinal) from jsonb_to_recordset(chunks) as g(ordinal integer));
  tail bigint;                                          -- the last chunk of the call before
  longest integer;
begin
  select d.ready_revision into strict ready
    from ragdb.document d
   where d.document_id = write_chunks.document_id and d.pending_revision = write_chunks.revision;
  select c.name, c.analyzer into strict col
    from ragdb.document d join ragdb.collection c using (collection_id) where d.document_id = write_chunks.document_id;
  if col.analyzer = 'builtin' and jsonb_path_exists(chunks, '$[*].lexemes ? (@ != null)') then
    raise exception 'chunks come with lexemes, but collection "%" has the builtin analyzer', col.name
      using errcode = 'RD004', hint = 'Leave them out, or use a collection made with {"analyzer": "external"}.';
  end if;
  -- the text may be large: its length is taken once, with the last call, and its row is left alone before
  if not more then
    update ragdb.document_revision r set chunking = write_chunks.chunking
     where r.document_id = write_chunks.document_id and r.revision = write_chunks.revision
    returning length(r.content) into longest;
  end if;

  if exists (select from jsonb_to_recordset(chunks) as g(content text, "start" integer, "end" integer)
              where (g."start" >= 0 and (more or g."end" <= longest) and length(g.content) = g."end" - g."start") is not true)
     or not more and exists (select from ragdb.chunk_place p where p.document_id = write_chunks.document_id
                                and p.revision = write_chunks.revision and p.end_at > longest) then
    raise exception 'a chunk of document % is no span of its text', write_chunks.document_id
      using errcode = 'RD006', hint = 'content is the text from start to end, offsets count characters of the cleaned text.';
  end if;

  if coalesce(first_ordinal, 0) = 0 then
    delete from ragdb.chunk_place p where p.document_id = write_chunks.document_id and p.revision = write_chunks.revision;
    delete from ragdb.chunk k where k.document_id = write_chunks.document_id and k.born_revision = write_chunks.revision;
    delete from ragdb.section s where s.document_id = write_chunks.document_id and s.revision = write_chunks.revision;
  else
    select p.chunk_id into tail from ragdb.chunk_place p
     where p.document_id = write_chunks.document_id and p.revision = write_chunks.revision and p.ordinal = first_ordinal - 1;
    if not found then
      raise exception 'chunk % of document % comes before chunk %', first_ordinal, write_chunks.document_id, first_ordinal - 1
        using errcode = 'RD006', hint = 'Give the chunks in order, from 0 on.';
    end if;
  end if;

  with given as materialized (
    select s.*, nextval('ragdb.section_section_id_seq') as id
      from (select * from jsonb_to_recordset(sections)
                       as x(ordinal integer, parent integer, heading text, level smallint, path jsonb, "start" integer, "end" integer)
             order by x.ordinal) s)
  insert into ragdb.section (section_id, document_id, revision, ordinal, parent_section_id, heading, level, path, start_at, end_at)
  select g.id, write_chunks.document_id, write_chunks.revision, g.ordinal, up.id, g.heading, g.level,
         array(select jsonb_array_elements_text(g.path)), g."start", g."end"
    from given g left join given up on up.ordinal = g.parent
   order by g.ordinal;

  with given as (
    select g.*, substr(sha256(convert_to(g.context || chr(31) || g.content, 'UTF8')), 1, 16) as text_hash
      from jsonb_to_recordset(chunks) as g(ordinal integer, content text, context text, "start" integer, "end" integer, page integer, section integer, label text, lexemes jsonb)),
  nth as (
    select g.*, row_number() over (partition by g.text_hash order by g.ordinal) + case when first_ordinal = 0 or ready = 0 then 0 else (
             select count(*) from ragdb.chunk k join ragdb.chunk_place p on p.chunk_id = k.chunk_id
              where k.text_hash = g.text_hash and p.document_id = write_chunks.document_id and p.revision = write_chunks.revision) end as n
      from given g),
  old as (
    select k.chunk_id, k.text_hash, row_number() over (partition by k.text_hash order by p.ordinal) as n
      from ragdb.chunk_place p join ragdb.chunk k using (chunk_id)
     where p.document_id = write_chunks.document_id and p.revision = ready),
  matched as (
    select n.*, o.chunk_id as kept_id
      from nth n left join old o on o.text_hash = n.text_hash and o.n = n.n
     order by n.ordinal),
  -- ids in the order of the document: equal scores then stand in reading order
  mapped as materialized (
    select m.*, coalesce(m.kept_id, nextval('ragdb.chunk_chunk_id_seq')) as id, m.kept_id is not null as kept
      from matched m),
  fresh as (
    insert into ragdb.chunk (chunk_id, document_id, born_revision, text_hash, context, content, lexemes)
    select m.id, write_chunks.document_id, write_chunks.revision, m.text_hash, m.context, m.content, ragdb.given_lexemes(m.lexemes)
      from mapped m where not m.kept order by m.ordinal),
  placed as (
    insert into ragdb.chunk_place (document_id, revision, ordinal, chunk_id, previous_chunk_id, next_chunk_id, section_id, label, start_at, end_at, page)
    select write_chunks.document_id, write_chunks.revision, m.ordinal, m.id,
           coalesce(lag(m.id) over (order by m.ordinal), tail), lead(m.id) over (order by m.ordinal), s.section_id, m.label, m."start", m."end", m.page
      from mapped m
      left join ragdb.section s on s.document_id = write_chunks.document_id and s.revision = write_chunks.revision and s.ordinal = m.section)
  select count(*), count(*) filter (where kept) into written, reused from mapped;

  if tail is not null then
    update ragdb.chunk_place p
       set next_chunk_id = (select n.chunk_id from ragdb.chunk_place n
                             where n.document_id = p.document_id and n.revision = p.revision and n.ordinal = first_ordinal)
     where p.document_id = write_chunks.document_id and p.revision = write_chunks.revision and p.ordinal = first_ordinal - 1;
  end if;

  -- held: a set that is dropped meanwhile would else leave these vectors behind
  models := array(select s.model_id
                    from ragdb.vector_set s
                   where s.collection_id = (select d.collection_id from ragdb.document d where d.document_id = write_chunks.document_id)
                     for key share);
  if models <> '{}' then
    insert into ragdb.embedding (chunk_id, model_id, dims, v)
    select k.chunk_id, known.model_id, known.dims, known.v
      from ragdb.chunk_place p
      join ragdb.chunk k using (chunk_id)
      cross join unnest(models) as s(model_id)
      cross join lateral (
        select e.model_id, e.dims, e.v
          from ragdb.chunk twin join ragdb.embedding e on e.chunk_id = twin.chunk_id and e.model_id = s.model_id
         where twin.text_hash = k.text_hash and twin.chunk_id <> k.chunk_id
         limit 1) known
     where p.document_id = write_chunks.document_id and p.revision = write_chunks.revision and p.ordinal >= first_ordinal
       and k.born_revision = write_chunks.revision
    on conflict do nothing;
  end if;
end
$function$;
comment on function ragdb.write_chunks(bigint, integer, text, jsonb, jsonb, boolean) is
  'Writes sections and chunks of a pending revision; text that did not change keeps its chunk and vector.';

-- Forgets a document's pending revision, its chunks and its job.
create or replace function ragdb.drop_pending(document_id bigint) returns void
language plpgsql
set search_path from current
as $function$
declare
  ready integer;
begin
  delete from ragdb.job j where j.document_id = drop_pending.document_id;
  update ragdb.document d set pending_revision = null
   where d.document_id = drop_pending.document_id returning d.ready_revision into ready;
  delete from ragdb.chunk_place p where p.document_id = drop_pending.document_id and p.revision > ready;
  delete from ragdb.chunk k where k.document_id = drop_pending.document_id and k.born_revision > ready;
  delete from ragdb.section s where s.document_id = drop_pending.document_id and s.revision > ready;
  delete from ragdb.document_revision r where r.document_id = drop_pending.document_id and r.revision > ready;
end
$function$;
comment on function ragdb.drop_pending(bigint) is 'Forgets the pending revision of a document; the ready one stays.';
