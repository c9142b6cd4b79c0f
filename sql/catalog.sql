-- What is in the schema ragdb, one row an object: kind, name, definition. Reads only the system catalogue.
-- `ragdb db check` compares it with the rows recorded for the revision in migrations/catalog/; in psql it shows the same:
--   \i sql/catalog.sql
-- Owners and the schema of pgvector may differ from one database to the next and are left out, as are the HNSW indexes
-- of models (ragdb.embedding_hnsw_<model_id>), which are no part of a revision, and what PostgreSQL itself makes for
-- constraints. Run it with pgvector's schema on the search_path, or its types carry that schema's name.
with ours as (select 'ragdb'::regnamespace as id),
vector as (select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'),
relation as (
  select c.* from pg_class c, ours where c.relnamespace = ours.id and c.relname !~ '^embedding_hnsw_\d+$'),
-- "owner" is whoever owns the object: what he may do follows from that.
privilege as (
  select 'table ' || c.relname as object, c.relowner as owner, a.*
    from relation c, aclexplode(c.relacl) a where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
  union all
  select 'column ' || c.relname || '.' || t.attname, c.relowner, a.*
    from relation c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
  union all
  select 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', p.proowner, a.*
    from ours join pg_proc p on p.pronamespace = ours.id, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
  union all
  select 'schema', n.nspowner, a.* from ours join pg_namespace n on n.oid = ours.id, aclexplode(n.nspacl) a)
select kind, name, definition from (
  select case c.relkind when 'r' then 'table' when 'v' then 'view' when 'S' then 'sequence' when 'm' then 'materialized view' else 'relation ' || c.relkind::text end as kind,
         c.relname::text as name,
         concat_ws(' ', case c.relpersistence when 'u' then 'unlogged' when 't' then 'temporary' end,
                   array_to_string(c.reloptions, ' '),
                   case when c.relrowsecurity then 'row level security' end, case when c.relforcerowsecurity then 'forced' end,
                   case when c.relkind in ('v', 'm') then pg_get_viewdef(c.oid) end) as definition
    from relation c where c.relkind not in ('i', 'I', 'c', 't')
  union all
  select 'column', c.relname || '.' || a.attname,
         concat_ws(' ', format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
                   'default ' || pg_get_expr(d.adbin, d.adrelid), case a.attidentity when 'a' then 'identity always' when 'd' then 'identity' end,
                   case when a.attgenerated <> '' then 'generated' end,
                   'collate ' || nullif(a.attcollation, t.typcollation)::regcollation::text,
                   case when a.attstorage <> t.typstorage then
                     'storage ' || case a.attstorage when 'p' then 'plain' when 'e' then 'external' when 'm' then 'main' else 'extended' end end,
                   case when a.attstattarget >= 0 then 'statistics ' || a.attstattarget end)
    from relation c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    join pg_type t on t.oid = a.atttypid
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
   where c.relkind in ('r', 'v', 'm', 'p')
  union all
  -- not null (contype n) is a constraint only from PostgreSQL 18 on, and stands in the column
  select 'constraint', c.relname || '.' || k.conname, pg_get_constraintdef(k.oid) || case when not k.convalidated then ' (not validated)' else '' end
    from relation c join pg_constraint k on k.conrelid = c.oid where k.contype not in ('n', 't')
  union all
  select 'index', c.relname::text,
         concat_ws(' ', regexp_replace(pg_get_indexdef(c.oid), '\mragdb\.', '', 'g'), case when not i.indisvalid then '(invalid)' end)
    from relation c join pg_index i on i.indexrelid = c.oid
  union all
  select 'trigger', c.relname || '.' || g.tgname,
         concat_ws(' ', pg_get_triggerdef(g.oid), case g.tgenabled when 'D' then '(disabled)' when 'R' then '(replica)' when 'A' then '(always)' end)
    from relation c join pg_trigger g on g.tgrelid = c.oid where not g.tgisinternal
  union all
  select 'policy', c.relname || '.' || p.polname,
         concat_ws(' ', case when p.polpermissive then 'permissive' else 'restrictive' end, p.polcmd::text,
                   'to ' || (select string_agg(case r when 0 then 'public' else pg_get_userbyid(r)::text end, ', ' order by r) from unnest(p.polroles) r),
                   'using ' || pg_get_expr(p.polqual, p.polrelid), 'check ' || pg_get_expr(p.polwithcheck, p.polrelid))
    from relation c join pg_policy p on p.polrelid = c.oid
  union all
  select 'rule', c.relname || '.' || r.rulename, pg_get_ruledef(r.oid)
    from relation c join pg_rewrite r on r.ev_class = c.oid where r.rulename <> '_RETURN'
  union all
  select 'function', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
         replace(case p.prokind when 'a' then 'aggregate' else pg_get_functiondef(p.oid) end,
                 'pg_catalog'', ''' || v.nspname || ''',', 'pg_catalog'', ''(pgvector)'',')
    from ours join pg_proc p on p.pronamespace = ours.id cross join vector v
  union all
  select 'type', t.typname::text, t.typtype::text
    from ours join pg_type t on t.typnamespace = ours.id
   where t.typrelid = 0 and t.typelem = 0
  union all
  select 'grant', p.object || ' to ' || case p.grantee when 0 then 'public' else pg_get_userbyid(p.grantee)::text end,
         string_agg(p.privilege_type || case when p.is_grantable then ' with grant option' else '' end, ', ' order by p.privilege_type)
    from privilege p where p.grantee <> p.owner group by p.object, p.grantee
  union all
  select 'comment', d.what, d.description
    from (select case c.relkind when 'i' then 'index' when 'S' then 'sequence' when 'v' then 'view' else 'table' end || ' ' || c.relname
                 || coalesce('.' || a.attname, '') as what, s.description
            from relation c
            join pg_description s on s.objoid = c.oid and s.classoid = 'pg_class'::regclass
            left join pg_attribute a on a.attrelid = c.oid and a.attnum = s.objsubid and s.objsubid > 0
          union all
          select 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', s.description
            from ours join pg_proc p on p.pronamespace = ours.id
            join pg_description s on s.objoid = p.oid and s.classoid = 'pg_proc'::regclass
          union all
          select 'trigger ' || c.relname || '.' || g.tgname, s.description
            from relation c join pg_trigger g on g.tgrelid = c.oid
            join pg_description s on s.objoid = g.oid and s.classoid = 'pg_trigger'::regclass
          union all
          select 'policy ' || c.relname || '.' || p.polname, s.description
            from relation c join pg_policy p on p.polrelid = c.oid
            join pg_description s on s.objoid = p.oid and s.classoid = 'pg_policy'::regclass
          union all
          select 'schema', obj_description(ours.id, 'pg_namespace') from ours) d
   where d.description is not null) x
 order by kind, name;
