-- The probe of a model: its vector of a fixed text, stored when it was first used. What a program embeds later under the
-- same name is compared with it (ragdb.db.probe): another vector is another model.

create or replace function ragdb.model_probe(model text) returns double precision[]
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
begin
  return (
    select m.probe::real[]::double precision[]
      from ragdb.embedding_model m
     where m.name = model_probe.model
       and (ragdb.reads_all() or exists (select from ragdb.vector_set s
                                          where s.model_id = m.model_id and ragdb.read_limits(s.collection_id) is distinct from '[]')));
end
$function$;
comment on function ragdb.model_probe(text) is 'The stored vector of the fixed text of a model; null where there is none.';

create or replace function ragdb.keep_probe(model text, numbers double precision[]) returns boolean
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
begin
  update ragdb.embedding_model m set probe = ragdb.checked_vector(numbers, m.dims, m.name) where m.name = model and m.probe is null;
  return found;
end
$function$;
comment on function ragdb.keep_probe(text, double precision[]) is 'Stores the probe of a model that has none yet; false where it has one.';
