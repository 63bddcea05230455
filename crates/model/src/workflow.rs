//! What the control plane does by itself, over many commits: the kinds of workflow, and the names of their commits.

use crate::choice::choice;

choice! {
    /// What a workflow does. Its subject is an id, of the noun that each kind names.
    "a kind of workflow" WorkflowKind {
        /// Brings a deployment from its request to where it answers; also one that was stopped.
        Deploy = "deploy",
        /// Moves an environment's live routes to a deployment that somebody chose. Its subject is the environment.
        Switch = "switch",
        /// Stops a deployment that was replaced, after its grace and place by place.
        Retire = "retire",
        /// Removes an environment, an app or a project with all that is in it.
        Delete = "delete",
        /// Brings a new image or size to every sentinel, one after the other. Its subject is the rollout.
        Rollout = "rollout",
    }
}

choice! {
    /// Every commit that a workflow makes: a test can stop one before and after each of them.
    "a workflow's commit" WorkflowCommit {
        /// The regions are settled.
        Started = "started",
        /// It is about to be placed.
        Deploying = "deploying",
        /// One place has its topology row, its sentinel and its network policy.
        Placed = "placed",
        /// Something is noted of what it waits for.
        Noted = "noted",
        /// Enough runs: traffic may move.
        Healthy = "healthy",
        /// Every route has moved at once.
        Switched = "switched",
        /// A canary has its first or its next share.
        Weighed = "weighed",
        /// A canary waits for more traffic, or for somebody.
        Paused = "paused",
        /// A canary lost its share again.
        Unweighed = "unweighed",
        /// What was replaced is handed to workflows of its own, and the deployment is ready.
        Finalized = "finalized",
        Failed = "failed",
        Superseded = "superseded",
        /// What a cancelled deployment had was taken away.
        Cancelled = "cancelled",
        /// Somebody's choice of what is live waits for a deployment that was stopped.
        Restarted = "restarted",
        /// Somebody's choice is what is live.
        Chosen = "chosen",
        /// Somebody's choice cannot be, or another was made since.
        Dropped = "dropped",
        /// A deployment that was replaced is stopped in one place, or in more.
        Retired = "retired",
        /// A deployment that was to be stopped is needed again.
        Left = "left",
        /// Routes are off, and what ran is told to go.
        Emptied = "emptied",
        /// An environment has nothing left and is removed.
        Removed = "removed",
        /// An app or a project has nothing left and is removed.
        RemovedRoot = "removed_root",
        /// What was to be deleted is.
        Deleted = "deleted",
        /// The next sentinel of a rollout has its new image and size, or its old one again.
        SentinelTold = "sentinel_told",
        /// That sentinel runs with it and is healthy.
        SentinelRolled = "sentinel_rolled",
        /// That sentinel does not come to be healthy: the rollout waits for somebody.
        RolloutPaused = "rollout_paused",
        /// A rollout has no sentinel left, or somebody wants it to rest.
        RolloutEnded = "rollout_ended",
        /// What it was about is no longer there.
        Abandoned = "abandoned",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_every_commit_reads_back() {
        for kind in WorkflowKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        for commit in WorkflowCommit::ALL {
            assert_eq!(commit.as_str().parse(), Ok(*commit));
        }
    }
}
