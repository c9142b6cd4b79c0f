-- Chunks around each of the given ones in their documents' ready revisions: `distance` -1 is the previous one,
-- 0 itself, 1 the next. Never crosses a document.
create or replace function ragdb.neighbors(chunk_ids bigint[], "window" integer default 1)
returns table (hit_chunk_id bigint, distance integer, chunk_id bigint, document_id bigint, start_at integer, end_at integer,
               label text, heading_path text[], page integer)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  readable bigint[] := ragdb.readable_documents(array(select distinct k.document_id from ragdb.chunk k where k.chunk_id = any (chunk_ids)));
begin
  if "window" is null or "window" < 0 or "window" > 10000 then
    raise exception 'window is %; it is from 0 to 10000', coalesce("window"::text, 'null') using errcode = 'RD004';
  end if;
  return query
  select p.chunk_id, n.ordinal - p.ordinal, n.chunk_id, n.document_id, n.start_at, n.end_at, n.label, coalesce(s.path, '{}'), n.page
    from unnest(chunk_ids) with ordinality as u(id, position)
    join ragdb.chunk_place p on p.chunk_id = u.id
    join ragdb.document d on d.document_id = p.document_id and d.ready_revision = p.revision
    join ragdb.chunk_place n on n.document_id = p.document_id and n.revision = p.revision
                            and n.ordinal between p.ordinal - "window" and p.ordinal + "window"
    left join ragdb.section s on s.section_id = n.section_id
   where d.document_id = any (readable)
   order by u.position, n.ordinal;
end
$function$;
comment on function ragdb.neighbors(bigint[], integer) is 'The chunks before and after each given chunk in its document.';

-- Spans of documents as they stand in the ready revision, in the order asked for.
create or replace function ragdb.document_spans(document_ids bigint[], starts bigint[], ends bigint[])
returns table (ordinal integer, content text)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  readable bigint[] := ragdb.readable_documents(document_ids);
begin
  return query
  select u.n::integer, substr(r.content, least(u.s, 2000000000)::integer + 1, least(greatest(u.e - u.s, 0), 2000000000 - least(greatest(u.s, 0), 2000000000))::integer)
    from unnest(document_ids, starts, ends) with ordinality as u(id, s, e, n)
    join ragdb.document d on d.document_id = u.id
    join ragdb.document_revision r on r.document_id = d.document_id and r.revision = d.ready_revision
   where d.document_id = any (readable)
   order by u.n;
end
$function$;
comment on function ragdb.document_spans(bigint[], bigint[], bigint[]) is 'Text of spans of documents, by offsets into the ready revision.';
