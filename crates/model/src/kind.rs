//! The three kinds of thing an agent keeps true in its cluster.

use crate::choice::choice;

choice! {
    /// A kind has its own stream, cursor and breaker. Its text is the component that its objects are labelled with.
    "a kind" Kind {
        Deployment = "deployment",
        Sentinel = "sentinel",
        NetworkPolicy = "networkpolicy",
    }
}
