-- BM25's term part of a chunk, so that the score of a question is one inner product with the words' idf:
--   tf (k1 + 1) / (tf + k1 (1 - b + b length / pivot)),  Robertson and Zaragoza 2009, eq. 3.15.
-- Null for a chunk without lexemes. The 16,000 largest weights are kept: a sparsevec holds no more.
create or replace function ragdb.lexical_weights(lexemes tsvector, k1 double precision, b double precision, pivot double precision)
returns sparsevec
language sql immutable parallel safe strict
set search_path from current
-- numbers pass through text
set extra_float_digits = 1
as $function$
  with term as materialized (
    select ragdb.lexeme_index(u.lexeme) as i, coalesce(cardinality(u.positions), 1)::double precision as tf
      from unnest(lexemes) u),
  chunk as materialized (
    select k1 * (1 - b + b * sum(tf) / pivot) as normal from term)
  -- as real, which is what a sparsevec holds: half the digits to write and to read
  select ('{' || string_agg(i || ':' || w, ',') || '}/536870912')::sparsevec
    from (-- two lexemes of one dimension would be an error in sparsevec
          select i, sum(tf * (k1 + 1) / (tf + normal))::real as w
            from term, chunk
           group by i
           order by w desc, i
           limit 16000) x
$function$;
comment on function ragdb.lexical_weights(tsvector, double precision, double precision, double precision) is
  'BM25 term weights of a chunk as a sparse vector of 2^29 dimensions; the inner product with the idf of the question''s words is the BM25 score.';
