-- Lists go by the key within what they are of; without these a page of a small list reads a large table.

CREATE INDEX deployments_of_workspace ON deployments (workspace_id, id);
CREATE INDEX deployments_of_app ON deployments (app_id, id);
CREATE INDEX deployments_of_environment ON deployments (environment_id, id);
CREATE INDEX events_of_workspace ON events (workspace_id, version);
CREATE INDEX audit_log_by_workspace ON audit_log (workspace_id, id);
CREATE INDEX tokens_of_workspace ON tokens (workspace_id, id);
