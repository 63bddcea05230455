-- The ground: every table, and the clock that numbers changes. `store_now()` is the connection's own.
--
-- Times are milliseconds since 1970. A versioned table has one version column for each stream that it
-- feeds; the column is NULL only inside the transaction that makes the row, for the commit stamps it.
-- `gone` marks a tombstone, `gone_at` when it became one.

CREATE TABLE clock (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  version INTEGER NOT NULL,
  floor INTEGER NOT NULL,
  history TEXT NOT NULL,
  since INTEGER NOT NULL,
  history_at INTEGER NOT NULL,
  foundation TEXT NOT NULL,
  served_at INTEGER NOT NULL
) STRICT;

-- The tree.

CREATE TABLE workspaces (
  id TEXT PRIMARY KEY,
  slug TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  k8s_namespace TEXT NOT NULL UNIQUE,
  quotas TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE projects (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  slug TEXT NOT NULL,
  name TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  UNIQUE (workspace_id, slug)
) STRICT;

CREATE TABLE apps (
  id TEXT PRIMARY KEY,
  project_id TEXT NOT NULL REFERENCES projects (id),
  slug TEXT NOT NULL,
  name TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  UNIQUE (project_id, slug)
) STRICT;

CREATE TABLE environments (
  id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL REFERENCES apps (id),
  slug TEXT NOT NULL,
  delete_protection INTEGER NOT NULL,
  settings TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  -- What sentinels are sent.
  policies TEXT NOT NULL DEFAULT '[]',
  gone INTEGER NOT NULL,
  gone_at INTEGER,
  change_id TEXT,
  version INTEGER
) STRICT;
CREATE UNIQUE INDEX environments_slug ON environments (app_id, slug) WHERE NOT gone;
CREATE UNIQUE INDEX environments_version ON environments (version);
CREATE INDEX environments_graves ON environments (version) WHERE gone;

CREATE TABLE variables (
  environment_id TEXT NOT NULL REFERENCES environments (id),
  name TEXT NOT NULL,
  sealed BLOB NOT NULL,
  kind TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (environment_id, name)
) STRICT;

-- Deployments: all but `status`, `reason` and `desired_state` never changes after the row is made.

CREATE TABLE deployments (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  project_id TEXT NOT NULL REFERENCES projects (id),
  app_id TEXT NOT NULL REFERENCES apps (id),
  environment_id TEXT NOT NULL REFERENCES environments (id),
  environment_slug TEXT NOT NULL,
  k8s_name TEXT NOT NULL UNIQUE,
  image TEXT NOT NULL,
  git_sha TEXT,
  git_branch TEXT,
  git_message TEXT,
  git_author TEXT,
  git_repository TEXT,
  git_at INTEGER,
  cpu_millis INTEGER NOT NULL,
  memory_mib INTEGER NOT NULL,
  storage_mib INTEGER,
  port INTEGER NOT NULL,
  command TEXT NOT NULL,
  shutdown_signal TEXT NOT NULL,
  shutdown_grace_seconds INTEGER NOT NULL,
  healthcheck TEXT,
  upstream_protocol TEXT NOT NULL,
  sealed_variables BLOB,
  created_at INTEGER NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  desired_state TEXT NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX deployments_environment ON deployments (environment_id, created_at);

CREATE TABLE deployment_steps (
  deployment_id TEXT NOT NULL REFERENCES deployments (id),
  step TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  note TEXT,
  error TEXT,
  PRIMARY KEY (deployment_id, step)
) STRICT;

CREATE TABLE regions (
  platform TEXT NOT NULL,
  name TEXT NOT NULL,
  can_schedule INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (platform, name)
) STRICT;

CREATE TABLE clusters (
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  -- Leases and heartbeats: renewed every second, and worth no version. The lease says whether the cluster is
  -- reachable; the term, whether reports must name the epoch (an agent that knows no terms has a lease only).
  epoch INTEGER NOT NULL DEFAULT 0,
  lease_expires_at INTEGER,
  term_expires_at INTEGER,
  instance_id TEXT,
  agent_version TEXT,
  counts TEXT NOT NULL DEFAULT '[]',
  -- What everybody may see.
  uid TEXT,
  reachability TEXT NOT NULL DEFAULT 'never_seen',
  can_schedule INTEGER NOT NULL DEFAULT TRUE,
  held_back TEXT NOT NULL DEFAULT '[]',
  gone INTEGER NOT NULL,
  gone_at INTEGER,
  change_id TEXT,
  version INTEGER,
  PRIMARY KEY (platform, region, shard),
  FOREIGN KEY (platform, region) REFERENCES regions (platform, name)
) STRICT;
CREATE UNIQUE INDEX clusters_version ON clusters (version);
CREATE INDEX clusters_graves ON clusters (version) WHERE gone;

CREATE TABLE deployment_topology (
  deployment_id TEXT NOT NULL REFERENCES deployments (id),
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  environment_id TEXT NOT NULL REFERENCES environments (id),
  k8s_namespace TEXT NOT NULL,
  -- Desired, for the agent. Stopped, it is a tombstone and the row stays; removed, the row goes with it.
  replicas_min INTEGER NOT NULL,
  replicas_max INTEGER NOT NULL,
  cpu_threshold INTEGER,
  memory_threshold INTEGER,
  desired_status TEXT NOT NULL,
  removed INTEGER NOT NULL,
  gone INTEGER NOT NULL,
  gone_at INTEGER,
  change_id TEXT,
  version INTEGER,
  -- Routing, for sentinels and the workflow: this, and the instances of the row.
  upstream_protocol TEXT NOT NULL,
  deployment_status TEXT NOT NULL,
  apply_error_reason TEXT,
  apply_error_message TEXT,
  apply_error_since INTEGER,
  routing_gone INTEGER NOT NULL,
  routing_gone_at INTEGER,
  routing_version INTEGER,
  -- The last report that was taken, of what runs and of what cannot be applied.
  report_epoch INTEGER NOT NULL DEFAULT 0,
  report_sequence INTEGER NOT NULL DEFAULT 0,
  apply_epoch INTEGER NOT NULL DEFAULT 0,
  apply_sequence INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (deployment_id, platform, region, shard),
  FOREIGN KEY (platform, region, shard) REFERENCES clusters (platform, region, shard)
) STRICT;
CREATE INDEX deployment_topology_place ON deployment_topology (platform, region, shard);
CREATE UNIQUE INDEX deployment_topology_version ON deployment_topology (version);
CREATE UNIQUE INDEX deployment_topology_routing ON deployment_topology (routing_version);
CREATE INDEX deployment_topology_graves ON deployment_topology (version) WHERE gone;
CREATE INDEX deployment_topology_routing_graves ON deployment_topology (routing_version) WHERE routing_gone;

CREATE TABLE instances (
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  k8s_name TEXT NOT NULL,
  id TEXT NOT NULL UNIQUE,
  deployment_id TEXT NOT NULL,
  address TEXT,
  zone TEXT,
  cpu_millis INTEGER,
  memory_mib INTEGER,
  status TEXT NOT NULL,
  ready INTEGER NOT NULL,
  reason TEXT,
  message TEXT,
  restarts INTEGER NOT NULL,
  exit_code INTEGER,
  pod_uid TEXT,
  first_seen_at INTEGER NOT NULL,
  last_seen_at INTEGER NOT NULL,
  PRIMARY KEY (platform, region, shard, k8s_name),
  FOREIGN KEY (deployment_id, platform, region, shard)
    REFERENCES deployment_topology (deployment_id, platform, region, shard)
) STRICT;
CREATE INDEX instances_deployment ON instances (deployment_id, platform, region, shard);

CREATE TABLE sentinels (
  id TEXT PRIMARY KEY,
  environment_id TEXT NOT NULL REFERENCES environments (id),
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  app_id TEXT NOT NULL,
  k8s_name TEXT NOT NULL,
  k8s_address TEXT NOT NULL,
  -- Desired, for the agent.
  image TEXT NOT NULL,
  replicas INTEGER NOT NULL,
  cpu_millis INTEGER NOT NULL,
  memory_mib INTEGER NOT NULL,
  settings TEXT NOT NULL,
  credential_key TEXT NOT NULL,
  credential_generation INTEGER NOT NULL,
  gossip_generation INTEGER NOT NULL,
  desired_status TEXT NOT NULL,
  removed INTEGER NOT NULL,
  gone INTEGER NOT NULL,
  gone_at INTEGER,
  change_id TEXT,
  version INTEGER,
  -- Observed, for the workflow.
  running_image TEXT,
  available_replicas INTEGER NOT NULL DEFAULT 0,
  ready_replicas INTEGER NOT NULL DEFAULT 0,
  health TEXT NOT NULL DEFAULT 'unknown',
  rollout_status TEXT NOT NULL DEFAULT 'idle',
  apply_error_reason TEXT,
  apply_error_message TEXT,
  apply_error_since INTEGER,
  observed_gone INTEGER NOT NULL,
  observed_gone_at INTEGER,
  observed_version INTEGER,
  report_epoch INTEGER NOT NULL DEFAULT 0,
  report_sequence INTEGER NOT NULL DEFAULT 0,
  apply_epoch INTEGER NOT NULL DEFAULT 0,
  apply_sequence INTEGER NOT NULL DEFAULT 0,
  FOREIGN KEY (platform, region, shard) REFERENCES clusters (platform, region, shard)
) STRICT;
CREATE UNIQUE INDEX sentinels_place ON sentinels (environment_id, platform, region, shard) WHERE NOT gone;
CREATE INDEX sentinels_name ON sentinels (platform, region, shard, k8s_name);
CREATE UNIQUE INDEX sentinels_version ON sentinels (version);
CREATE UNIQUE INDEX sentinels_observed ON sentinels (observed_version);
CREATE INDEX sentinels_graves ON sentinels (version) WHERE gone;
CREATE INDEX sentinels_observed_graves ON sentinels (observed_version) WHERE observed_gone;

CREATE TABLE cilium_network_policies (
  id TEXT PRIMARY KEY,
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  k8s_namespace TEXT NOT NULL,
  k8s_name TEXT NOT NULL,
  deployment_id TEXT NOT NULL,
  policy TEXT NOT NULL,
  gone INTEGER NOT NULL,
  gone_at INTEGER,
  change_id TEXT,
  version INTEGER,
  apply_error_reason TEXT,
  apply_error_message TEXT,
  apply_error_since INTEGER,
  observed_gone INTEGER NOT NULL,
  observed_gone_at INTEGER,
  observed_version INTEGER,
  apply_epoch INTEGER NOT NULL DEFAULT 0,
  apply_sequence INTEGER NOT NULL DEFAULT 0,
  FOREIGN KEY (platform, region, shard) REFERENCES clusters (platform, region, shard)
) STRICT;
CREATE UNIQUE INDEX cilium_network_policies_name
  ON cilium_network_policies (platform, region, shard, k8s_namespace, k8s_name) WHERE NOT gone;
CREATE UNIQUE INDEX cilium_network_policies_version ON cilium_network_policies (version);
CREATE UNIQUE INDEX cilium_network_policies_observed ON cilium_network_policies (observed_version);
CREATE INDEX cilium_network_policies_graves ON cilium_network_policies (version) WHERE gone;
CREATE INDEX cilium_network_policies_observed_graves
  ON cilium_network_policies (observed_version) WHERE observed_gone;

CREATE TABLE routes (
  environment_id TEXT NOT NULL REFERENCES environments (id),
  hostname TEXT NOT NULL,
  targets TEXT NOT NULL,
  previous TEXT,
  follows TEXT NOT NULL,
  affinity TEXT NOT NULL,
  gone INTEGER NOT NULL,
  gone_at INTEGER,
  change_id TEXT,
  version INTEGER,
  PRIMARY KEY (environment_id, hostname)
) STRICT;
CREATE UNIQUE INDEX routes_hostname ON routes (hostname) WHERE NOT gone;
CREATE UNIQUE INDEX routes_version ON routes (version);
CREATE INDEX routes_graves ON routes (version) WHERE gone;

-- Who may: API keys of the sentinels' key policy, and tokens of our own API.

CREATE TABLE keyspaces (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  name TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  UNIQUE (workspace_id, name)
) STRICT;

CREATE TABLE keys (
  id TEXT PRIMARY KEY,
  keyspace_id TEXT NOT NULL REFERENCES keyspaces (id),
  hash BLOB NOT NULL UNIQUE,
  name TEXT NOT NULL,
  owner TEXT,
  enabled INTEGER NOT NULL,
  expires_at INTEGER,
  permissions TEXT NOT NULL,
  limits TEXT NOT NULL,
  gone INTEGER NOT NULL,
  gone_at INTEGER,
  change_id TEXT,
  version INTEGER
) STRICT;
CREATE UNIQUE INDEX keys_version ON keys (version);
CREATE INDEX keys_graves ON keys (version) WHERE gone;
CREATE INDEX keys_keyspace ON keys (keyspace_id);

CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  role TEXT,
  workspace_id TEXT,
  platform TEXT,
  region TEXT,
  shard TEXT,
  created_at INTEGER NOT NULL,
  last_used_at INTEGER,
  expires_at INTEGER,
  revoked_at INTEGER,
  gone INTEGER NOT NULL,
  gone_at INTEGER,
  change_id TEXT,
  version INTEGER
) STRICT;
CREATE UNIQUE INDEX tokens_version ON tokens (version);
CREATE INDEX tokens_graves ON tokens (version) WHERE gone;

-- What happened, and who did it.

CREATE TABLE events (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  workspace_id TEXT,
  project_id TEXT,
  app_id TEXT,
  environment_id TEXT,
  deployment_id TEXT,
  sentinel_id TEXT,
  token_id TEXT,
  platform TEXT,
  region TEXT,
  shard TEXT,
  at INTEGER NOT NULL,
  fields TEXT NOT NULL,
  change_id TEXT NOT NULL,
  version INTEGER
) STRICT;
CREATE UNIQUE INDEX events_version ON events (version);
CREATE INDEX events_deployment ON events (deployment_id, version);

CREATE TABLE audit_log (
  id TEXT PRIMARY KEY,
  at INTEGER NOT NULL,
  token_id TEXT NOT NULL,
  workspace_id TEXT,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  change_id TEXT,
  request_id TEXT,
  detail TEXT NOT NULL
) STRICT;
CREATE INDEX audit_log_workspace ON audit_log (workspace_id, at);

-- The machinery of the control plane; nobody watches these.

CREATE TABLE workflows (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  step TEXT NOT NULL,
  state TEXT NOT NULL,
  wake_at INTEGER NOT NULL,
  claim_holder TEXT,
  claim_epoch INTEGER NOT NULL,
  claim_expires_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at INTEGER
) STRICT;
CREATE INDEX workflows_due ON workflows (wake_at) WHERE ended_at IS NULL;

-- What each life of a sentinel told last, and what grew from one report to the next, in buckets.
CREATE TABLE traffic_senders (
  environment_id TEXT NOT NULL,
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  start_id TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  seen_at INTEGER NOT NULL,
  sums TEXT NOT NULL,
  PRIMARY KEY (environment_id, platform, region, shard, start_id)
) STRICT;
CREATE INDEX traffic_senders_silent ON traffic_senders (seen_at);

CREATE TABLE traffic (
  environment_id TEXT NOT NULL,
  bucket_at INTEGER NOT NULL,
  hostname TEXT NOT NULL,
  deployment_id TEXT NOT NULL,
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  start_id TEXT NOT NULL,
  sums TEXT NOT NULL,
  PRIMARY KEY (environment_id, bucket_at, hostname, deployment_id, platform, region, shard, start_id)
) STRICT;
CREATE INDEX traffic_age ON traffic (bucket_at);

CREATE TABLE requests (
  environment_id TEXT NOT NULL,
  id TEXT NOT NULL,
  at INTEGER NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (environment_id, id)
) STRICT;
CREATE INDEX requests_environment ON requests (environment_id, at);
CREATE INDEX requests_age ON requests (at, environment_id, id);

CREATE TABLE sentinel_rollouts (
  id TEXT PRIMARY KEY,
  image TEXT,
  cpu_millis INTEGER,
  memory_mib INTEGER,
  state TEXT NOT NULL,
  position TEXT,
  previous TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE idempotency_keys (
  token_id TEXT NOT NULL,
  key TEXT NOT NULL,
  method TEXT NOT NULL,
  path TEXT NOT NULL,
  body_hash BLOB NOT NULL,
  state TEXT NOT NULL,
  answer BLOB,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (token_id, key)
) STRICT;
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
