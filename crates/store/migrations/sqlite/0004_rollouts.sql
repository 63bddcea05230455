-- Why a rollout waits, and whether it takes back what it did.
ALTER TABLE sentinel_rollouts ADD COLUMN reason TEXT;
ALTER TABLE sentinel_rollouts ADD COLUMN back INTEGER NOT NULL DEFAULT 0;

-- The one slot for a rollout that something can still be asked of; NULL once it is over.
ALTER TABLE sentinel_rollouts ADD COLUMN slot INTEGER;
CREATE UNIQUE INDEX sentinel_rollouts_one_at_a_time ON sentinel_rollouts (slot);
