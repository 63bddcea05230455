//! Every bound on a name, a size or a count, once: the edges check them, the documentation quotes them.

/// Characters of a DNS label, and of a Kubernetes label value.
pub const LABEL_CHARS: usize = 63;
/// Characters of a whole hostname, and of a Kubernetes object name.
pub const HOSTNAME_CHARS: usize = 253;
/// Characters of a user's slug. A cut hostname spends [`HOSTNAME_HASH_CHARS`] and a hyphen on its mark; behind
/// the longest slug there is still room for some of what follows it.
pub const SLUG_CHARS: usize = 48;
/// Characters of a shard's name: the agents' Lease is `krane-<shard>`.
pub const SHARD_CHARS: usize = LABEL_CHARS - "krane-".len();
/// Characters of an image's name, without tag and digest.
pub const IMAGE_NAME_CHARS: usize = 255;
/// Characters of an image's tag.
pub const IMAGE_TAG_CHARS: usize = 128;
/// Hex digits that end a hostname which had to be cut.
pub const HOSTNAME_HASH_CHARS: usize = 6;
/// Characters of one line of free text: a title, an author, a branch.
pub const LINE_CHARS: usize = 256;
/// Bytes of a message that somebody else wrote: a pod's last words, a commit message, an API server's refusal.
pub const MESSAGE_BYTES: usize = 1024;
/// Bytes of a path that is asked for a workload's health.
pub const HEALTH_PATH_BYTES: usize = 1024;

/// Regions of one deployment.
pub const REGIONS: usize = 100;
/// Policies of one environment.
pub const POLICIES: usize = 100;
/// Hostnames of an environment's settings.
pub const HOSTNAMES: usize = 100;
/// Deployments that share one route.
pub const ROUTE_TARGETS: usize = 16;
/// The weight of one deployment on a route.
pub const ROUTE_WEIGHT: u32 = 10_000;
/// Steps of a canary.
pub const CANARY_STEPS: usize = 20;
/// Keys of one keyspace.
pub const KEYS: usize = 100_000;

/// Variables of one environment.
pub const VARIABLES: usize = 1000;
/// Bytes of one variable's value.
pub const VARIABLE_BYTES: usize = 32 * 1024;
/// Bytes of all variables of one environment, names and values.
pub const VARIABLES_BYTES: usize = 64 * 1024;
/// Characters of a variable's name.
pub const VARIABLE_NAME_CHARS: usize = 256;
/// Bytes of one environment string, which the kernel limits.
pub const KERNEL_STRING_BYTES: usize = 128 * 1024;
/// Words of a command.
pub const COMMAND_WORDS: usize = 256;
/// Bytes of a command, all words together.
pub const COMMAND_BYTES: usize = 32 * 1024;
/// Bytes of a network policy's JSON.
pub const NETWORK_POLICY_BYTES: usize = 64 * 1024;

/// Bytes of what a sentinel is told to read as its settings.
pub const SENTINEL_SETTINGS_BYTES: usize = 64 * 1024;
/// Bytes of all policies of one environment.
pub const POLICIES_BYTES: usize = 1024 * 1024;

/// Instances of one deployment in one report: a rollout at its fullest has every instance twice.
pub const INSTANCES: usize = 2000;
/// Kinds of what an agent keeps true.
pub const KINDS: usize = crate::kind::Kind::ALL.len();
/// Names of one kind in an agent's inventory.
pub const INVENTORY: usize = 50_000;
/// Pairs of hostname and deployment in one report of traffic.
pub const TRAFFIC_SUMS: usize = 10_000;
/// Requests that one report of traffic shows.
pub const TRAFFIC_SAMPLES: usize = 1000;
/// Problems that are told of one input: enough to see what is wrong, and it fits into a header.
pub const PROBLEMS: usize = 32;

/// The least CPU of an instance, in millicores.
pub const CPU_MILLIS_MIN: u32 = 10;
/// The most CPU of an instance, in millicores.
pub const CPU_MILLIS_MAX: u32 = 64_000;
/// The least memory of an instance, in MiB.
pub const MEMORY_MIB_MIN: u32 = 16;
/// The most memory of an instance, in MiB.
pub const MEMORY_MIB_MAX: u32 = 524_288;
/// The least scratch storage of an instance that has any, in MiB.
pub const STORAGE_MIB_MIN: u32 = 1;
/// The most scratch storage of an instance, in MiB.
pub const STORAGE_MIB_MAX: u32 = 1_048_576;
/// The most instances of a deployment in one place. The fewest are none, which is still an apply.
pub const REPLICAS_MAX: u32 = 1000;
/// The fewest instances an autoscaler may go down to: the API server refuses 0.
pub const AUTOSCALING_MIN: u32 = 1;
/// The longest time a setting may name, in seconds.
pub const SECONDS_MAX: u32 = 86_400;

const _: () = {
    assert!(LABEL_CHARS < HOSTNAME_CHARS);
    assert!(
        SLUG_CHARS + 1 + HOSTNAME_HASH_CHARS + 1 < LABEL_CHARS,
        "a cut hostname keeps a whole slug and more"
    );
    assert!(SHARD_CHARS >= SLUG_CHARS);
    assert!(VARIABLE_BYTES <= VARIABLES_BYTES, "one variable fits into all of them");
    // Sealed variables travel as base64 in one environment string.
    assert!(VARIABLES_BYTES.div_ceil(3) * 4 < KERNEL_STRING_BYTES);
    assert!(COMMAND_BYTES < KERNEL_STRING_BYTES);
    assert!(CPU_MILLIS_MIN < CPU_MILLIS_MAX);
    assert!(MEMORY_MIB_MIN < MEMORY_MIB_MAX);
    assert!(STORAGE_MIB_MIN < STORAGE_MIB_MAX);
    assert!(2 * REPLICAS_MAX as usize <= INSTANCES, "a rollout at its fullest can be reported");
    assert!(0 < AUTOSCALING_MIN && AUTOSCALING_MIN <= REPLICAS_MAX);
};
