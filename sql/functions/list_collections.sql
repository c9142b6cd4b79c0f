-- The collections that the caller may search, by name, each with its model and its size.
create or replace function ragdb.list_collections()
returns table (collection text, model text, dims integer, text_search_config text, documents bigint, chunks bigint, waiting bigint)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select c.name, m.name, m.dims, c.text_search_config::text, n.documents, n.chunks, n.waiting
    from ragdb.collection c
    left join ragdb.embedding_model m on m.model_id = c.active_model_id
    cross join lateral (select count(*) as documents, coalesce(sum(d.n_chunks), 0) as chunks,
                               count(*) filter (where d.ingest_state <> 'ready') as waiting
                          from ragdb.document d where d.collection_id = c.collection_id) n
   where c.collection_id = any (ragdb.readable_collections())
   order by c.name
$function$;
comment on function ragdb.list_collections() is 'The collections that the caller may search, each with its model and its size.';
