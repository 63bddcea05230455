//! A real API server, with a namespace, a shard and an account for each test. The account has what the printed role
//! gives it, and no more.

use agent::{
    cluster::{
        Cluster as _, Error, Fault,
        kube::{Kube, KubeConfig, Requests},
    },
    object::{Ref, Type},
    rbac,
};
use http::{Method, Request};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use model::name::Shard;
use runtime::{clock::Clock, random::Random};
use serde_json::Value;

use crate::suite::{self, Setting, soon};

pub struct Real {
    cluster: Kube,
    /// Somebody who may do everything.
    admin: Client,
    /// Of every client that this made.
    pub requests: Requests,
    name: String,
}

impl Real {
    pub async fn start() -> Real {
        let name = format!("krane-test-{:012x}", Random::system().u64() >> 16);
        let admin = client_as(None).await;
        let nobody = kube_on(admin.clone(), &name, &Requests::default(), &KubeConfig::default());
        let mut real = Real { cluster: nobody, admin, requests: Requests::default(), name };
        real.install_role().await;
        real.cluster = real.kube_on(real.client().await);
        real.await_rights().await;
        real.make_namespace().await;
        real
    }

    /// Who the agent is to the API server.
    pub fn account(&self) -> String {
        format!("system:serviceaccount:{0}:{0}", self.name)
    }

    /// The agent's own client.
    pub async fn client(&self) -> Client {
        client_as(Some(&self.account())).await
    }

    pub async fn kube_of(&self, user: &str, config: &KubeConfig) -> Kube {
        self.kube_with(client_as(Some(user)).await, config)
    }

    pub fn kube_on(&self, client: Client) -> Kube {
        self.kube_with(client, &KubeConfig::default())
    }

    pub fn kube_with(&self, client: Client, config: &KubeConfig) -> Kube {
        kube_on(client, &self.name, &self.requests, config)
    }

    /// As the agent of another shard.
    pub async fn kube_for(&self, shard: Shard, config: &KubeConfig) -> Kube {
        let (clock, random) = (Clock::system(), Random::system());
        Kube::new(self.client().await, config, shard, self.requests.clone(), clock, random)
    }

    pub async fn client_with(&self, change: impl FnOnce(&mut Config)) -> Client {
        let mut config = config().await;
        change(&mut config);
        Client::try_from(config).unwrap()
    }

    /// The printed role, under a name of our own: other tests have theirs.
    async fn install_role(&self) {
        let printed = Value::from(rbac::manifests(&self.name)).to_string().replace(rbac::NAME, &self.name);
        let objects: Vec<Value> = serde_json::from_str(&printed).unwrap();
        for object in objects {
            let (kind, name) = (object["kind"].as_str().unwrap(), &self.name);
            let rbac = "/apis/rbac.authorization.k8s.io/v1";
            let path = match kind {
                "Namespace" => format!("/api/v1/namespaces/{name}"),
                "ServiceAccount" => format!("/api/v1/namespaces/{name}/serviceaccounts/{name}"),
                "ClusterRole" => format!("{rbac}/clusterroles/{name}"),
                "ClusterRoleBinding" => format!("{rbac}/clusterrolebindings/{name}"),
                "Role" => format!("{rbac}/namespaces/{name}/roles/{name}"),
                "RoleBinding" => format!("{rbac}/namespaces/{name}/rolebindings/{name}"),
                kind => panic!("{kind} is printed and not applied here"),
            };
            let path = format!("{path}?fieldManager=installer&fieldValidation=Strict");
            ask(&self.admin, Method::PATCH, &path, Some(&object)).await;
        }
    }

    /// The API server reads a new binding a moment after it was written.
    async fn await_rights(&self) {
        let is_forbidden = async || {
            let (uid, leases) = (self.cluster.uid().await, self.cluster.leases(&self.name).await);
            [uid.err(), leases.err()].into_iter().flatten().any(|error| error.fault == Fault::Forbidden)
        };
        soon(async {
            while is_forbidden().await {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn make_namespace(&self) {
        let namespace = suite::namespace(&self.namespace());
        self.apply(&Ref::new(Type::Namespace, "", &self.namespace()), &namespace).await;
    }
}

impl Setting for Real {
    type Cluster = Kube;

    fn cluster(&self) -> &Kube {
        &self.cluster
    }

    fn namespace(&self) -> String {
        format!("{}-user", self.name)
    }

    fn own_namespace(&self) -> String {
        self.name.clone()
    }

    fn shard(&self) -> Shard {
        self.name.parse().unwrap()
    }

    fn of_shard(&self, shard: &str) -> impl Future<Output = Kube> {
        let shard = shard.parse().unwrap();
        async move { self.kube_for(shard, &KubeConfig::default()).await }
    }

    async fn edit(&self, object: &Ref, operations: &[Value]) -> Result<Value, Error> {
        let path = format!("{}?fieldManager=stranger", path(object));
        let request = Request::builder().method(Method::PATCH).uri(path);
        let request = request.header("content-type", "application/json-patch+json");
        let body = Value::from(operations.to_vec()).to_string().into_bytes();
        let answer = self.admin.request(request.body(body).unwrap()).await;
        answer.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => Error::new(Fault::NotFound, status.message),
            kube::Error::Api(status) if status.code == 409 => Error::new(Fault::Conflict, status.message),
            kube::Error::Api(status) if status.code < 500 => Error::new(Fault::Refused, status.message),
            error => Error::new(Fault::Unavailable, error.to_string()),
        })
    }

    async fn get(&self, object: &Ref) -> Option<Value> {
        let request = Request::builder().uri(path(object)).body(Vec::new()).unwrap();
        match self.admin.request(request).await {
            Ok(found) => Some(found),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{object}: {error}"),
        }
    }

    async fn remove(&self, object: &Ref) {
        ask(&self.admin, Method::DELETE, &path(object), None).await;
    }
}

/// Where the API server has an object.
fn path(object: &Ref) -> String {
    let Ref { ty, namespace, name } = object;
    let group = if ty.group().is_empty() { "/api".to_owned() } else { format!("/apis/{}", ty.group()) };
    let place = if ty.is_namespaced() { format!("/namespaces/{namespace}") } else { String::new() };
    format!("{group}/{}{place}/{}/{name}", ty.version(), ty.plural())
}

fn kube_on(client: Client, shard: &str, requests: &Requests, config: &KubeConfig) -> Kube {
    let shard = shard.parse().unwrap();
    Kube::new(client, config, shard, requests.clone(), Clock::system(), Random::system())
}

async fn client_as(user: Option<&str>) -> Client {
    let mut config = config().await;
    config.auth_info.impersonate = user.map(str::to_owned);
    Client::try_from(config).unwrap()
}

async fn config() -> Config {
    let path = environment("KRANE_TEST_KUBECONFIG");
    let file = Kubeconfig::read_from(path).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    config
}

async fn ask(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Value {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/apply-patch+yaml");
    let body = body.map(Value::to_string).unwrap_or_default();
    client.request(request.body(body.into_bytes()).unwrap()).await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test is told where its real parts are")]
pub fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this with cargo xtask test"))
}
