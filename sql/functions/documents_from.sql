-- For those who write, before they add. The documents of a collection that came from one of these files (`source`): {"sources": ["/home/me/docs/a.md", ...]}.
create or replace function ragdb.documents_from(collection text, files jsonb)
returns table (uri text, source text)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select d.uri, d.source
    from ragdb.collection c
    join ragdb.document d on d.collection_id = c.collection_id
   where c.name = collection and ragdb.reads_all()
     and d.source = any (array(select jsonb_array_elements_text(files -> 'sources')))
   order by d.uri
$function$;
comment on function ragdb.documents_from(text, jsonb) is 'The documents of a collection that came from one of these files.';
