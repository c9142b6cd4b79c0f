-- The collections that the caller reads, whole or in part, by name, each with its model and its size.
create or replace function ragdb.list_collections()
returns table (collection text, model text, dims integer, text_search_config text, documents bigint, chunks bigint, waiting bigint)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
  select c.name, m.name, m.dims, c.text_search_config::text, n.n_documents, n.n_chunks, n.n_waiting
    from ragdb.collection c
    left join ragdb.embedding_model m on m.model_id = c.active_model_id
    cross join lateral ragdb.collection_counts(c.name) n
   where ragdb.read_limits(c.collection_id) is distinct from '[]'
   order by c.name
$function$;
comment on function ragdb.list_collections() is 'The collections that the caller reads, whole or in part, each with its model and the size of what he reads.';
