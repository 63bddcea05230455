//! An API server that refuses a watch: the agent does not start, says what it lacks, and leaves nothing behind.

use std::{
    path::PathBuf,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use agent::{
    OpenError, StartError,
    cluster::{
        Fault,
        kube::{Kube, Requests},
    },
    object::Type,
    rbac::{RULES, Resource, Rule, Scope, Verb},
};
use futures_util::future::BoxFuture;
use harness::{
    audit::{self, Audit},
    eventually,
    ground::Ground,
    kubernetes::{ADMIN, Kubernetes, kubeconfig},
    runner::{self, Runner},
};
use http::{Request, Response};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, ListParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use runtime::{clock::Clock, random::Random};
use serde_json::{Value, json};

/// Longer than a watch waits before it is opened again.
const AFTERWARDS: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_refuses_a_watch_fails_the_start_whole() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let audit = Audit::from_now();
    let mut instances = Vec::new();
    for ty in Type::ALL {
        let lacks = |rule: &Rule, verb: Verb| rule.resource == Resource::Of(ty) && verb == Verb::Watch;
        let (instance, error) = start_without(&ground, &kubernetes, ty.plural(), lacks).await;
        let OpenError::Watch(StartError::Refused { ty: refused, error: reason }) = &error else {
            panic!("{ty:?}: {error:?}")
        };
        assert_eq!((*refused, error.to_string()), (ty, format!("{} cannot be watched", ty.plural())));
        // What the API server says of secrets is never repeated.
        let is_said = reason.message.contains(ty.plural()) && reason.message.contains("watch");
        assert!(reason.fault == Fault::Forbidden && (is_said || ty == Type::Secret), "{reason}");
        instances.push(instance);
    }
    let lacks = |rule: &Rule, _| matches!(rule.scope, Scope::Named(_));
    let (instance, error) = start_without(&ground, &kubernetes, "uid", lacks).await;
    assert!(matches!(error, OpenError::Uid(_)), "{error:?}");
    instances.push(instance);
    instances.push(start_without_cilium(&ground).await);

    let asked = |instance: &String| audit.of_agent(instance);
    let before: Vec<usize> = instances.iter().map(|instance| asked(instance).len()).collect();
    tokio::time::sleep(AFTERWARDS).await;
    for (instance, before) in instances.iter().zip(before) {
        let all = asked(instance);
        // The end of a watch may come into the log a moment after the start has failed; nothing may begin.
        let begun = all[before..].iter().filter(|request| request.verb != "watch" || !request.is_over);
        assert_eq!(begun.collect::<Vec<_>>(), [] as [&audit::Request; 0], "{instance} goes on asking");
        let writes = all.iter().filter(|request| request.is_write());
        assert_eq!(
            writes.collect::<Vec<_>>(),
            [] as [&audit::Request; 0],
            "{instance} wrote before it could see"
        );
        let (ended, open) = watches(&all);
        assert_eq!(open, 0, "{instance} has watches open, {ended} ended");
    }
    ground.end().await;
}

/// How many watches have ended, and how many have not. One that was refused was never open.
fn watches(all: &[audit::Request]) -> (usize, usize) {
    let watches = all.iter().filter(|request| request.verb == "watch" && request.code == 200);
    let (over, begun): (Vec<&audit::Request>, Vec<_>) = watches.partition(|request| request.is_over);
    (over.len(), begun.len().saturating_sub(over.len()))
}

/// Starts an agent that may do everything but this; it must not work.
async fn start_without(
    ground: &Ground,
    kubernetes: &Kubernetes,
    what: &str,
    lacks: impl Fn(&Rule, Verb) -> bool,
) -> (String, OpenError) {
    let instance = format!("without-{what}-{}", ground.names.place.shard);
    let rules: Vec<Value> = RULES.iter().filter_map(|rule| rule_without(rule, &lacks)).collect();
    let rbac = |kind: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": instance },
        })
    };
    let (mut role, mut binding) = (rbac("ClusterRole"), rbac("ClusterRoleBinding"));
    role["rules"] = rules.into();
    let group = "rbac.authorization.k8s.io";
    binding["roleRef"] = json!({ "apiGroup": group, "kind": "ClusterRole", "name": instance });
    binding["subjects"] = json!([{ "apiGroup": group, "kind": "User", "name": instance }]);
    kubernetes.apply(role).await;
    kubernetes.apply(binding).await;
    let file = impersonating(ground, &instance).await;
    let mut config = runner::config(ground, &instance);
    config.kubernetes.kubeconfig = Some(file);
    let cluster = Arc::new(runner::connect(&config).await);
    match Runner::start_on(config, cluster).await {
        Ok(_) => panic!("it started without {what}"),
        Err(error) => (instance, error),
    }
}

/// Starts an agent on a cluster whose API server was never told of Cilium's policies; it must not work.
async fn start_without_cilium(ground: &Ground) -> String {
    let instance = format!("without-cilium-{}", ground.names.place.shard);
    let file = Kubeconfig::read_from(kubeconfig(ADMIN)).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut known_as = config.expect("a good kubeconfig");
    let agent = format!("krane-agent/{instance}").parse().expect("a header");
    known_as.headers.push((http::header::USER_AGENT, agent));
    let server = Client::try_from(known_as).expect("a client");
    let config = runner::config(ground, &instance);
    let (shard, requests) = (ground.names.place.shard.clone(), Requests::default());
    let client = Client::new(WithoutCilium(server), "default");
    let (clock, random) = (Clock::system(), Random::system());
    let cluster = Kube::new(client, &config.kubernetes, shard, requests, clock, random);
    let error = Runner::start_on(config, Arc::new(cluster)).await.err().expect("it does not start");
    let OpenError::Watch(StartError::Refused { ty, error: reason }) = &error else { panic!("{error:?}") };
    assert_eq!((*ty, reason.fault), (Type::CiliumNetworkPolicy, Fault::NotFound), "{reason}");
    instance
}

/// Asks for what nobody ever heard of in the place of Cilium's policies; the answer is the API server's own.
struct WithoutCilium(Client);

impl tower_service::Service<Request<Body>> for WithoutCilium {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let server = self.0.clone();
        let uri = request.uri().to_string().replace(Type::CiliumNetworkPolicy.plural(), "unheardof");
        *request.uri_mut() = uri.parse().expect("a path");
        Box::pin(async move { server.send(request).await })
    }
}

fn rule_without(rule: &Rule, lacks: impl Fn(&Rule, Verb) -> bool) -> Option<Value> {
    let verbs: Vec<&str> =
        rule.verbs.iter().filter(|verb| !lacks(rule, **verb)).map(|verb| verb.as_str()).collect();
    let mut made = json!({
        "apiGroups": [rule.resource.group()], "resources": [rule.resource.plural()], "verbs": verbs,
    });
    if let Scope::Named(name) = rule.scope {
        made["resourceNames"] = json!([name]);
    }
    (!verbs.is_empty()).then_some(made)
}

/// A kubeconfig of somebody whose role the API server already knows.
async fn impersonating(ground: &Ground, user: &str) -> PathBuf {
    let mut file = Kubeconfig::read_from(kubeconfig(ADMIN)).expect("a kubeconfig");
    for named in &mut file.auth_infos {
        named.auth_info.as_mut().expect("who it is").impersonate = Some(user.to_owned());
    }
    let path = ground.home.path().join(format!("{user}.kubeconfig"));
    std::fs::write(&path, serde_json::to_vec(&file).expect("JSON")).expect("it is written");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a good kubeconfig")).expect("a client");
    let secrets = kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
    let api: Api<DynamicObject> = Api::all_with(client, &secrets);
    eventually("the role is known", async || {
        let listed = api.list(&ListParams::default().limit(1)).await;
        listed.map(|_| ()).map_err(|error| error.to_string())
    })
    .await;
    path
}
