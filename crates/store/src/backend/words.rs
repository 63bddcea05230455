//! What the two databases have no common words for, and so is said twice: a list as a table, and locks in an
//! order.
//!
//! Above the backend such a statement is PostgreSQL's text; SQLite puts its own in the place of it.

/// One statement, in the words of each database.
struct Twice {
    postgres: &'static str,
    sqlite: &'static str,
}

/// Clusters by the JSON list `$1` of their places and, if `$3`, those whose lease is past: all that are
/// reachable, if no control plane served for `$2`. Locked in the order of their places until the commit.
///
/// SQLite has one writer at a time, so nothing there needs a lock of its own.
pub(crate) const TEND: &str = r#"
  SELECT c.platform, c.region, c.shard, c.epoch, c.reachability, c.counts, c.held_back,
    COALESCE(c.term_expires_at > store_now(), FALSE), COALESCE(c.lease_expires_at <= store_now(), FALSE),
    CASE WHEN k.served_at < store_now() - $2 THEN k.served_at END
  FROM clusters c CROSS JOIN clock k
  WHERE NOT c.gone AND (
    (c.platform, c.region, c.shard) IN (
      SELECT l.platform, l.region, l.shard
      FROM json_to_recordset($1::TEXT::JSON) AS l (platform TEXT, region TEXT, shard TEXT))
    OR ($3 AND c.reachability = 'reachable'
      AND (c.lease_expires_at <= store_now() OR k.served_at < store_now() - $2)))
  ORDER BY c.platform COLLATE "C", c.region COLLATE "C", c.shard COLLATE "C"
  FOR NO KEY UPDATE OF c"#;

const TEND_SQLITE: &str = "
  SELECT c.platform, c.region, c.shard, c.epoch, c.reachability, c.counts, c.held_back,
    COALESCE(c.term_expires_at > store_now(), FALSE), COALESCE(c.lease_expires_at <= store_now(), FALSE),
    CASE WHEN k.served_at < store_now() - $2 THEN k.served_at END
  FROM clusters c CROSS JOIN clock k
  WHERE NOT c.gone AND (
    (c.platform, c.region, c.shard) IN (
      SELECT l.value ->> 'platform', l.value ->> 'region', l.value ->> 'shard' FROM json_each($1) AS l)
    OR ($3 AND c.reachability = 'reachable'
      AND (c.lease_expires_at <= store_now() OR k.served_at < store_now() - $2)))
  ORDER BY c.platform, c.region, c.shard";

/// Renews the leases of the JSON list `$1`, each place once; the caller holds their locks.
pub(crate) const RENEW: &str = "
  UPDATE clusters SET lease_expires_at = store_now() + l.ttl ,
    term_expires_at = CASE WHEN l.has_term THEN store_now() + l.ttl ELSE clusters.term_expires_at END ,
    agent_version = COALESCE(l.agent_version, clusters.agent_version) , counts = l.counts
  FROM json_to_recordset($1::TEXT::JSON) AS l (platform TEXT, region TEXT, shard TEXT, ttl BIGINT,
    has_term BOOLEAN, agent_version TEXT, counts TEXT)
  WHERE clusters.platform = l.platform AND clusters.region = l.region AND clusters.shard = l.shard";

const RENEW_SQLITE: &str = "
  UPDATE clusters SET lease_expires_at = store_now() + l.ttl ,
    term_expires_at = CASE WHEN l.has_term THEN store_now() + l.ttl ELSE clusters.term_expires_at END ,
    agent_version = COALESCE(l.agent_version, clusters.agent_version) , counts = l.counts
  FROM (SELECT value ->> 'platform' AS platform, value ->> 'region' AS region, value ->> 'shard' AS shard,
      value ->> 'ttl' AS ttl, value ->> 'has_term' AS has_term, value ->> 'agent_version' AS agent_version,
      value ->> 'counts' AS counts
    FROM json_each($1)) AS l
  WHERE clusters.platform = l.platform AND clusters.region = l.region AND clusters.shard = l.shard";

/// When the tokens of the JSON list `$1` were last used, each token once; a later use stays. Locked in the order
/// of ids, for every replica writes it.
pub(crate) const USED: &str = r#"
  UPDATE tokens SET last_used_at = l.used_at
  FROM (
    SELECT t.id, l.used_at
    FROM tokens t JOIN json_to_recordset($1::TEXT::JSON) AS l (id TEXT, used_at BIGINT) ON t.id = l.id
    WHERE t.last_used_at IS NULL OR t.last_used_at < l.used_at
    ORDER BY t.id COLLATE "C" FOR NO KEY UPDATE OF t) AS l
  WHERE tokens.id = l.id"#;

const USED_SQLITE: &str = "
  UPDATE tokens SET last_used_at = l.used_at
  FROM (SELECT value ->> 'id' AS id, value ->> 'used_at' AS used_at FROM json_each($1)) AS l
  WHERE tokens.id = l.id AND (tokens.last_used_at IS NULL OR tokens.last_used_at < l.used_at)";

const TWICE: &[Twice] = &[
    Twice { postgres: TEND, sqlite: TEND_SQLITE },
    Twice { postgres: RENEW, sqlite: RENEW_SQLITE },
    Twice { postgres: USED, sqlite: USED_SQLITE },
];

/// SQLite's words for a statement.
pub(crate) fn for_sqlite(sql: &'static str) -> &'static str {
    TWICE.iter().find(|twice| twice.postgres == sql).map_or(sql, |twice| twice.sqlite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed;

    #[test]
    fn neither_wording_touches_what_is_watched() {
        for Twice { postgres, sqlite } in TWICE {
            assert!(!feed::writes_versioned(postgres), "{postgres}");
            assert!(!feed::writes_versioned(sqlite), "{sqlite}");
        }
    }

    #[test]
    fn sqlite_has_its_own_words_only_where_they_differ() {
        assert_eq!(for_sqlite(TEND), TEND_SQLITE);
        assert_eq!(for_sqlite("SELECT 1"), "SELECT 1");
    }
}
