-- The ground: every table, the clock that numbers changes, and the store's own time.
--
-- Times are milliseconds since 1970. A versioned table has one version column for each stream that it
-- feeds; the column is NULL only inside the transaction that makes the row, for the commit stamps it.
-- `gone` marks a tombstone, `gone_at` when it became one.

CREATE FUNCTION store_now() RETURNS BIGINT LANGUAGE sql VOLATILE
  AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT $$;

CREATE TABLE clock (
  id BIGINT PRIMARY KEY CHECK (id = 1),
  version BIGINT NOT NULL,
  floor BIGINT NOT NULL,
  history TEXT NOT NULL,
  since BIGINT NOT NULL,
  history_at BIGINT NOT NULL,
  foundation TEXT NOT NULL,
  served_at BIGINT NOT NULL
);

-- The tree.

CREATE TABLE workspaces (
  id TEXT PRIMARY KEY,
  slug TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  k8s_namespace TEXT NOT NULL UNIQUE,
  quotas TEXT NOT NULL,
  revision BIGINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE projects (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  slug TEXT NOT NULL,
  name TEXT NOT NULL,
  revision BIGINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (workspace_id, slug)
);

CREATE TABLE apps (
  id TEXT PRIMARY KEY,
  project_id TEXT NOT NULL REFERENCES projects (id),
  slug TEXT NOT NULL,
  name TEXT NOT NULL,
  revision BIGINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (project_id, slug)
);

CREATE TABLE environments (
  id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL REFERENCES apps (id),
  slug TEXT NOT NULL,
  delete_protection BOOLEAN NOT NULL,
  settings TEXT NOT NULL,
  revision BIGINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  -- What sentinels are sent.
  policies TEXT NOT NULL DEFAULT '[]',
  gone BOOLEAN NOT NULL,
  gone_at BIGINT,
  change_id TEXT,
  version BIGINT
);
CREATE UNIQUE INDEX environments_slug ON environments (app_id, slug) WHERE NOT gone;
CREATE UNIQUE INDEX environments_version ON environments (version);
CREATE INDEX environments_graves ON environments (version) WHERE gone;

CREATE TABLE variables (
  environment_id TEXT NOT NULL REFERENCES environments (id),
  name TEXT NOT NULL,
  sealed BYTEA NOT NULL,
  kind TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (environment_id, name)
);

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
  git_at BIGINT,
  cpu_millis BIGINT NOT NULL,
  memory_mib BIGINT NOT NULL,
  storage_mib BIGINT,
  port BIGINT NOT NULL,
  command TEXT NOT NULL,
  shutdown_signal TEXT NOT NULL,
  shutdown_grace_seconds BIGINT NOT NULL,
  healthcheck TEXT,
  upstream_protocol TEXT NOT NULL,
  sealed_variables BYTEA,
  created_at BIGINT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  desired_state TEXT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX deployments_environment ON deployments (environment_id, created_at);

CREATE TABLE deployment_steps (
  deployment_id TEXT NOT NULL REFERENCES deployments (id),
  step TEXT NOT NULL,
  started_at BIGINT NOT NULL,
  ended_at BIGINT,
  note TEXT,
  error TEXT,
  PRIMARY KEY (deployment_id, step)
);

CREATE TABLE regions (
  platform TEXT NOT NULL,
  name TEXT NOT NULL,
  can_schedule BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (platform, name)
);

CREATE TABLE clusters (
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  -- Leases and heartbeats: renewed every second, and worth no version. The lease says whether the cluster is
  -- reachable; the term, whether reports must name the epoch (an agent that knows no terms has a lease only).
  epoch BIGINT NOT NULL DEFAULT 0,
  lease_expires_at BIGINT,
  term_expires_at BIGINT,
  instance_id TEXT,
  agent_version TEXT,
  counts TEXT NOT NULL DEFAULT '[]',
  -- What everybody may see.
  uid TEXT,
  reachability TEXT NOT NULL DEFAULT 'never_seen',
  can_schedule BOOLEAN NOT NULL DEFAULT TRUE,
  held_back TEXT NOT NULL DEFAULT '[]',
  gone BOOLEAN NOT NULL,
  gone_at BIGINT,
  change_id TEXT,
  version BIGINT,
  PRIMARY KEY (platform, region, shard),
  FOREIGN KEY (platform, region) REFERENCES regions (platform, name)
);
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
  replicas_min BIGINT NOT NULL,
  replicas_max BIGINT NOT NULL,
  cpu_threshold BIGINT,
  memory_threshold BIGINT,
  desired_status TEXT NOT NULL,
  removed BOOLEAN NOT NULL,
  gone BOOLEAN NOT NULL,
  gone_at BIGINT,
  change_id TEXT,
  version BIGINT,
  -- Routing, for sentinels and the workflow: this, and the instances of the row.
  upstream_protocol TEXT NOT NULL,
  deployment_status TEXT NOT NULL,
  apply_error_reason TEXT,
  apply_error_message TEXT,
  apply_error_since BIGINT,
  routing_gone BOOLEAN NOT NULL,
  routing_gone_at BIGINT,
  routing_version BIGINT,
  -- The last report that was taken, of what runs and of what cannot be applied.
  report_epoch BIGINT NOT NULL DEFAULT 0,
  report_sequence BIGINT NOT NULL DEFAULT 0,
  apply_epoch BIGINT NOT NULL DEFAULT 0,
  apply_sequence BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (deployment_id, platform, region, shard),
  FOREIGN KEY (platform, region, shard) REFERENCES clusters (platform, region, shard)
);
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
  cpu_millis BIGINT,
  memory_mib BIGINT,
  status TEXT NOT NULL,
  ready BOOLEAN NOT NULL,
  reason TEXT,
  message TEXT,
  restarts BIGINT NOT NULL,
  exit_code BIGINT,
  pod_uid TEXT,
  first_seen_at BIGINT NOT NULL,
  last_seen_at BIGINT NOT NULL,
  PRIMARY KEY (platform, region, shard, k8s_name),
  FOREIGN KEY (deployment_id, platform, region, shard)
    REFERENCES deployment_topology (deployment_id, platform, region, shard)
);
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
  replicas BIGINT NOT NULL,
  cpu_millis BIGINT NOT NULL,
  memory_mib BIGINT NOT NULL,
  settings TEXT NOT NULL,
  credential_key TEXT NOT NULL,
  credential_generation BIGINT NOT NULL,
  gossip_generation BIGINT NOT NULL,
  desired_status TEXT NOT NULL,
  removed BOOLEAN NOT NULL,
  gone BOOLEAN NOT NULL,
  gone_at BIGINT,
  change_id TEXT,
  version BIGINT,
  -- Observed, for the workflow.
  running_image TEXT,
  available_replicas BIGINT NOT NULL DEFAULT 0,
  ready_replicas BIGINT NOT NULL DEFAULT 0,
  health TEXT NOT NULL DEFAULT 'unknown',
  rollout_status TEXT NOT NULL DEFAULT 'idle',
  apply_error_reason TEXT,
  apply_error_message TEXT,
  apply_error_since BIGINT,
  observed_gone BOOLEAN NOT NULL,
  observed_gone_at BIGINT,
  observed_version BIGINT,
  report_epoch BIGINT NOT NULL DEFAULT 0,
  report_sequence BIGINT NOT NULL DEFAULT 0,
  apply_epoch BIGINT NOT NULL DEFAULT 0,
  apply_sequence BIGINT NOT NULL DEFAULT 0,
  FOREIGN KEY (platform, region, shard) REFERENCES clusters (platform, region, shard)
);
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
  gone BOOLEAN NOT NULL,
  gone_at BIGINT,
  change_id TEXT,
  version BIGINT,
  apply_error_reason TEXT,
  apply_error_message TEXT,
  apply_error_since BIGINT,
  observed_gone BOOLEAN NOT NULL,
  observed_gone_at BIGINT,
  observed_version BIGINT,
  apply_epoch BIGINT NOT NULL DEFAULT 0,
  apply_sequence BIGINT NOT NULL DEFAULT 0,
  FOREIGN KEY (platform, region, shard) REFERENCES clusters (platform, region, shard)
);
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
  gone BOOLEAN NOT NULL,
  gone_at BIGINT,
  change_id TEXT,
  version BIGINT,
  PRIMARY KEY (environment_id, hostname)
);
CREATE UNIQUE INDEX routes_hostname ON routes (hostname) WHERE NOT gone;
CREATE UNIQUE INDEX routes_version ON routes (version);
CREATE INDEX routes_graves ON routes (version) WHERE gone;

-- Who may: API keys of the sentinels' key policy, and tokens of our own API.

CREATE TABLE keyspaces (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  name TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  UNIQUE (workspace_id, name)
);

CREATE TABLE keys (
  id TEXT PRIMARY KEY,
  keyspace_id TEXT NOT NULL REFERENCES keyspaces (id),
  hash BYTEA NOT NULL UNIQUE,
  name TEXT NOT NULL,
  owner TEXT,
  enabled BOOLEAN NOT NULL,
  expires_at BIGINT,
  permissions TEXT NOT NULL,
  limits TEXT NOT NULL,
  gone BOOLEAN NOT NULL,
  gone_at BIGINT,
  change_id TEXT,
  version BIGINT
);
CREATE UNIQUE INDEX keys_version ON keys (version);
CREATE INDEX keys_graves ON keys (version) WHERE gone;
CREATE INDEX keys_keyspace ON keys (keyspace_id);

CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  hash BYTEA NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  role TEXT,
  workspace_id TEXT,
  platform TEXT,
  region TEXT,
  shard TEXT,
  created_at BIGINT NOT NULL,
  last_used_at BIGINT,
  expires_at BIGINT,
  revoked_at BIGINT,
  gone BOOLEAN NOT NULL,
  gone_at BIGINT,
  change_id TEXT,
  version BIGINT
);
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
  at BIGINT NOT NULL,
  fields TEXT NOT NULL,
  change_id TEXT NOT NULL,
  version BIGINT
);
CREATE UNIQUE INDEX events_version ON events (version);
CREATE INDEX events_deployment ON events (deployment_id, version);

CREATE TABLE audit_log (
  id TEXT PRIMARY KEY,
  at BIGINT NOT NULL,
  token_id TEXT NOT NULL,
  workspace_id TEXT,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  change_id TEXT,
  request_id TEXT,
  detail TEXT NOT NULL
);
CREATE INDEX audit_log_workspace ON audit_log (workspace_id, at);

-- The machinery of the control plane; nobody watches these.

CREATE TABLE workflows (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  step TEXT NOT NULL,
  state TEXT NOT NULL,
  wake_at BIGINT NOT NULL,
  claim_holder TEXT,
  claim_epoch BIGINT NOT NULL,
  claim_expires_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  ended_at BIGINT
);
CREATE INDEX workflows_due ON workflows (wake_at) WHERE ended_at IS NULL;

-- What each life of a sentinel told last, and what grew from one report to the next, in buckets.
CREATE TABLE traffic_senders (
  environment_id TEXT NOT NULL,
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  start_id TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  seen_at BIGINT NOT NULL,
  sums TEXT NOT NULL,
  PRIMARY KEY (environment_id, platform, region, shard, start_id)
);
CREATE INDEX traffic_senders_silent ON traffic_senders (seen_at);

CREATE TABLE traffic (
  environment_id TEXT NOT NULL,
  bucket_at BIGINT NOT NULL,
  hostname TEXT NOT NULL,
  deployment_id TEXT NOT NULL,
  platform TEXT NOT NULL,
  region TEXT NOT NULL,
  shard TEXT NOT NULL,
  start_id TEXT NOT NULL,
  sums TEXT NOT NULL,
  PRIMARY KEY (environment_id, bucket_at, hostname, deployment_id, platform, region, shard, start_id)
);
CREATE INDEX traffic_age ON traffic (bucket_at);

CREATE TABLE requests (
  environment_id TEXT NOT NULL,
  id TEXT NOT NULL,
  at BIGINT NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (environment_id, id)
);
CREATE INDEX requests_environment ON requests (environment_id, at);
CREATE INDEX requests_age ON requests (at, environment_id, id);

CREATE TABLE sentinel_rollouts (
  id TEXT PRIMARY KEY,
  image TEXT,
  cpu_millis BIGINT,
  memory_mib BIGINT,
  state TEXT NOT NULL,
  position TEXT,
  previous TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE idempotency_keys (
  token_id TEXT NOT NULL,
  key TEXT NOT NULL,
  method TEXT NOT NULL,
  path TEXT NOT NULL,
  body_hash BYTEA NOT NULL,
  state TEXT NOT NULL,
  answer BYTEA,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (token_id, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
