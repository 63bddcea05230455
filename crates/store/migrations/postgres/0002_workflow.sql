-- Whether somebody chose what is live: until the next choice, nothing newer takes its place by itself.
ALTER TABLE environments ADD COLUMN pinned BOOLEAN NOT NULL DEFAULT FALSE;

CREATE INDEX workflows_subject ON workflows (kind, subject);
CREATE INDEX workflows_ended ON workflows (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX deployments_workspace ON deployments (workspace_id);
CREATE INDEX cilium_network_policies_deployment ON cilium_network_policies (deployment_id);
CREATE INDEX events_age ON events (at);
