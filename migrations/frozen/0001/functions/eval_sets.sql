-- Sets of judged questions: made, filled, read, deleted. What is in them are plain rows (eval_set, eval_question,
-- eval_judgement), for psql too.
--   select key, question, judgements from ragdb.eval_questions('help');

-- Makes a set, or changes what it is for; returns its id.
create or replace function ragdb.put_eval_set(name text, collection text default null, description text default null, source text default null)
returns bigint
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  id bigint;
begin
  if not coalesce(name = btrim(name) and length(name) between 1 and 200, false) then
    raise exception 'the name of an evaluation set is %', coalesce(quote_literal(left(name, 210)), 'null')
      using errcode = 'RD004', hint = 'It has 1 to 200 characters, and no blank at its ends.';
  end if;
  insert into ragdb.eval_set as s (name, collection, description, source)
  values (put_eval_set.name, coalesce(put_eval_set.collection, 'default'), put_eval_set.description, put_eval_set.source)
  on conflict on constraint eval_set_name_key do update
     set collection = coalesce(put_eval_set.collection, s.collection),
         description = coalesce(excluded.description, s.description), source = coalesce(excluded.source, s.source)
  returning eval_set_id into id;
  return id;
end
$function$;
comment on function ragdb.put_eval_set(text, text, text, text) is 'Makes a set of judged questions, or changes what is given of it; returns its id.';

-- The set of a name, or an error with the names there are.
create or replace function ragdb.known_eval_set(name text) returns ragdb.eval_set
language plpgsql stable
set search_path from current
as $function$
declare
  s ragdb.eval_set;
begin
  select * into s from ragdb.eval_set x where x.name = known_eval_set.name;
  if not found then
    raise exception 'there is no evaluation set %', coalesce(quote_literal(known_eval_set.name), 'null')
      using errcode = 'RD004',
            hint = pg_catalog.format('There are: %s. Make one with: ragdb eval import.',
                          coalesce((select string_agg(x.name, ', ' order by x.name) from ragdb.eval_set x), 'none yet'));
  end if;
  return s;
end
$function$;
comment on function ragdb.known_eval_set(text) is 'The evaluation set of this name; an error that names those there are.';

-- Adds questions to a set, or changes those of the same key; judgements given take the place of those there were. A draft is
-- not stored where the document that a model made it from is gone by now.
--   {"questions": [{"key", "question", "reference"?, "language"?, "tags"?: [...], "where"?: {...}, "paraphrase_of"?, "state"?,
--                   "drafted_from"?, "drafted_by"?, "judgements"?: [{"uri", "grade"?, "trap"?, "label"?, "quote"?}]}]}
create or replace function ragdb.put_eval_questions(eval_set text, questions jsonb)
returns table (added bigint, changed bigint, judgements bigint)
language plpgsql rows 1
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  s ragdb.eval_set := ragdb.known_eval_set(eval_set);
  wrong text;
  g record;
  id bigint;
  is_new boolean;
  n bigint;
begin
  if jsonb_typeof(put_eval_questions.questions -> 'questions') is distinct from 'array' then
    raise exception 'questions is no list' using errcode = 'RD004', hint = 'Write it like {"questions": [{"key": "q1", "question": "..."}]}.';
  end if;
  -- each form is asked for before what is read from it
  select pg_catalog.format('question %s: %s', coalesce(x.value ->> 'key', x.n::text), p.problem) into wrong
    from jsonb_array_elements(put_eval_questions.questions -> 'questions') with ordinality as x(value, n)
   cross join lateral (select case
     when jsonb_typeof(x.value) <> 'object' then 'it is no object'
     when coalesce(x.value ->> 'key', '') = '' or coalesce(x.value ->> 'question', '') = '' then 'it lacks its key or question'
     when x.value ->> 'state' not in ('accepted', 'draft', 'rejected') then 'state is accepted, draft or rejected'
     when jsonb_typeof(x.value -> 'where') not in ('object', 'null') then 'where is an object'
     when jsonb_typeof(x.value -> 'tags') not in ('array', 'null') then 'tags is a list'
     when jsonb_typeof(x.value -> 'drafted_from') <> 'null' and x.value ->> 'drafted_from' !~ '^\d{1,18}$' then 'drafted_from is the id of a document'
     when jsonb_typeof(x.value -> 'judgements') not in ('array', 'null') then 'judgements is a list'
     else (
       select coalesce(
                min(case when jsonb_typeof(j.value) <> 'object' or coalesce(j.value ->> 'uri', '') = '' then 'a judgement lacks its uri'
                         when jsonb_typeof(j.value -> 'grade') <> 'null' and j.value ->> 'grade' !~ '^-?\d{1,9}$' then 'a grade is a whole number'
                         when jsonb_typeof(j.value -> 'trap') not in ('boolean', 'null') then 'trap is true or false'
                         when j.value ->> 'trap' = 'true' and (j.value ->> 'grade')::integer > 0 then 'a trap has no grade above 0' end),
                case when count(*) > count(distinct j.value - 'grade' - 'trap') then 'two judgements are about the same' end)
         from jsonb_array_elements(case jsonb_typeof(x.value -> 'judgements') when 'array' then x.value -> 'judgements' else '[]' end) j)
     end as problem) p
   where p.problem is not null order by x.n limit 1;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'RD004', hint = 'Of this call nothing was stored.';
  end if;
  select pg_catalog.format('%s is asked twice, as %s', q.key, count(*)) into wrong
    from jsonb_to_recordset(put_eval_questions.questions -> 'questions') as q(key text) group by q.key having count(*) > 1 limit 1;
  if wrong is not null then
    raise exception 'in one call %', wrong using errcode = 'RD004', hint = 'The key of a question is its own in a set.';
  end if;
  added := 0;
  changed := 0;
  judgements := 0;
  for g in
    select q.* from jsonb_to_recordset(put_eval_questions.questions -> 'questions')
      as q(key text, question text, reference text, language text, tags jsonb, "where" jsonb, paraphrase_of text, state text,
           drafted_from bigint, drafted_by text, judgements jsonb)
  loop
    -- held until the end: what deletes the document waits, and deletes the draft
    if g.drafted_from is not null then
      perform from ragdb.document d where d.document_id = g.drafted_from for key share;
      continue when not found and g.state <> 'accepted';
      g.drafted_from := case when found then g.drafted_from end;
    end if;
    insert into ragdb.eval_question as e
           (eval_set_id, key, question, reference, language, tags, "where", paraphrase_of, state, drafted_from, drafted_by)
    values (s.eval_set_id, g.key, g.question, g.reference, g.language, array(select jsonb_array_elements_text(coalesce(g.tags, '[]'))),
            coalesce(g."where", '{}'), g.paraphrase_of, coalesce(g.state, 'accepted'), g.drafted_from, g.drafted_by)
    on conflict on constraint eval_question_eval_set_id_key_key do update
       set question = excluded.question, reference = coalesce(excluded.reference, e.reference),
           language = coalesce(excluded.language, e.language),
           tags = case when excluded.tags = '{}' then e.tags else excluded.tags end,
           "where" = case when excluded."where" = '{}' then e."where" else excluded."where" end,
           paraphrase_of = coalesce(excluded.paraphrase_of, e.paraphrase_of), state = excluded.state,
           drafted_from = coalesce(excluded.drafted_from, e.drafted_from), drafted_by = coalesce(excluded.drafted_by, e.drafted_by)
    returning e.eval_question_id, e.xmax = 0 into id, is_new;
    added := added + is_new::integer;
    changed := changed + (not is_new)::integer;
    continue when g.judgements is null;
    delete from ragdb.eval_judgement j where j.eval_question_id = id;
    insert into ragdb.eval_judgement (eval_question_id, uri, label, quote, grade, trap)
    select id, j.uri, nullif(j.label, ''), nullif(btrim(j.quote, E' \t\r\n\u3000'), ''), coalesce(j.grade, case when coalesce(j.trap, false) then 0 else 1 end), coalesce(j.trap, false)
      from jsonb_to_recordset(g.judgements) as j(uri text, label text, quote text, grade integer, trap boolean);
    get diagnostics n = row_count;
    judgements := judgements + n;
  end loop;
  return next;
end
$function$;
comment on function ragdb.put_eval_questions(text, jsonb) is 'Adds questions with their judgements to a set, or changes those of the same key.';

-- The sets, by name, with what is in each.
create or replace function ragdb.eval_sets()
returns table (name text, collection text, description text, source text, questions bigint, answerable bigint, drafts bigint, runs bigint, created_at timestamptz)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select s.name, s.collection, s.description, s.source, q.accepted, q.answerable, q.drafts,
         (select count(*) from ragdb.eval_run r where r.eval_set_id = s.eval_set_id), s.created_at
    from ragdb.eval_set s
   cross join lateral (
     select count(*) filter (where x.state = 'accepted') as accepted,
            count(*) filter (where x.state = 'accepted' and exists (
              select from ragdb.eval_judgement j where j.eval_question_id = x.eval_question_id and j.grade > 0)) as answerable,
            count(*) filter (where x.state = 'draft') as drafts
       from ragdb.eval_question x where x.eval_set_id = s.eval_set_id) q
   order by s.name
$function$;
comment on function ragdb.eval_sets() is 'The evaluation sets, each with its questions, those that can be answered, drafts and runs.';

-- The questions of a set, by key, with their judgements.
create or replace function ragdb.eval_questions(eval_set text, states jsonb default '{"states": ["accepted"]}')
returns table (eval_question_id bigint, key text, question text, reference text, language text, tags text[], "where" jsonb,
               paraphrase_of text, state text, drafted_from bigint, drafted_by text, judgements jsonb)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  s ragdb.eval_set := ragdb.known_eval_set(eval_set);
begin
  return query
  select q.eval_question_id, q.key, q.question, q.reference, q.language, q.tags, q."where", q.paraphrase_of, q.state,
         q.drafted_from, q.drafted_by,
         coalesce((select jsonb_agg(pg_catalog.jsonb_build_object('uri', j.uri, 'grade', j.grade, 'trap', j.trap, 'label', j.label, 'quote', j.quote)
                                    order by j.eval_judgement_id)
                     from ragdb.eval_judgement j where j.eval_question_id = q.eval_question_id), '[]')
    from ragdb.eval_question q
   where q.eval_set_id = s.eval_set_id and (states -> 'states') ? q.state
   order by q.key;
end
$function$;
comment on function ragdb.eval_questions(text, jsonb) is 'The questions of a set in the states asked for, by key, each with its judgements.';

-- Says of questions whether a person accepts them; returns how many.
create or replace function ragdb.set_eval_state(eval_set text, keys jsonb, state text) returns bigint
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  s ragdb.eval_set := ragdb.known_eval_set(eval_set);
  n bigint;
begin
  if state is null or state not in ('accepted', 'draft', 'rejected') then
    raise exception 'state is %', coalesce(quote_literal(state), 'null') using errcode = 'RD004', hint = 'It is accepted, draft or rejected.';
  end if;
  if jsonb_typeof(keys -> 'keys') is distinct from 'array' then
    raise exception 'keys is no list' using errcode = 'RD004', hint = 'Write it like {"keys": ["q1", "q2"]}.';
  end if;
  update ragdb.eval_question q set state = set_eval_state.state
   where q.eval_set_id = s.eval_set_id and q.key in (select jsonb_array_elements_text(keys -> 'keys'));
  get diagnostics n = row_count;
  return n;
end
$function$;
comment on function ragdb.set_eval_state(text, jsonb, text) is 'Accepts or rejects questions of a set: keys is {"keys": [...]}, state is accepted, draft or rejected.';

-- Deletes a set with its questions, runs, results and their traces; a receipt with counts.
create or replace function ragdb.delete_eval_set(name text) returns jsonb
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  s ragdb.eval_set := ragdb.known_eval_set(name);
  receipt jsonb;
begin
  select pg_catalog.jsonb_build_object(
           'questions', (select count(*) from ragdb.eval_question q where q.eval_set_id = s.eval_set_id),
           'runs', (select count(*) from ragdb.eval_run r where r.eval_set_id = s.eval_set_id)) into receipt;
  -- nothing is added from here on; then in the order in which ragdb.delete_document() takes them: traces, results, questions
  perform from ragdb.eval_set x where x.eval_set_id = s.eval_set_id for update;
  delete from ragdb.run t using ragdb.eval_run r where r.eval_set_id = s.eval_set_id and t.eval_run_id = r.eval_run_id;
  delete from ragdb.eval_run r where r.eval_set_id = s.eval_set_id;
  delete from ragdb.eval_set x where x.eval_set_id = s.eval_set_id;
  return receipt;
end
$function$;
comment on function ragdb.delete_eval_set(text) is 'Deletes an evaluation set with its questions, runs and results; returns counts.';
