//! The cluster, as a story looks at it: a real one whose nodes are played, or a local one whose pods are processes.

use agent::{
    cluster::local::{Local, Propagation},
    object::{Ref, Type},
};
use model::{
    deployment::Deployment,
    name::{Address, Port},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{eventually, kubernetes::Kubernetes};

/// What a story asks of a cluster.
pub trait Stage: Sync {
    /// The object as it is, if it is there.
    fn get(&self, object: &Ref) -> impl Future<Output = Option<Value>>;

    /// Every object of a type in a namespace, as it is.
    fn all(&self, ty: Type, namespace: &str) -> impl Future<Output = Vec<Value>>;

    /// A stranger's deletion.
    fn delete(&self, object: &Ref) -> impl Future<Output = ()>;

    /// The port at which a pod of a deployment must be.
    fn port_of(&self, pod: &Value, deployment: &Deployment) -> Port;

    /// Sees that a running instance answers where it is said to be, if there can be anybody.
    fn answers(&self, address: &Address) -> impl Future<Output = ()>;
}

impl Stage for Kubernetes {
    async fn get(&self, object: &Ref) -> Option<Value> {
        Kubernetes::get(self, object).await
    }

    async fn all(&self, ty: Type, namespace: &str) -> Vec<Value> {
        Kubernetes::all(self, ty, namespace).await
    }

    async fn delete(&self, object: &Ref) {
        Kubernetes::delete(self, object).await;
    }

    fn port_of(&self, _: &Value, deployment: &Deployment) -> Port {
        deployment.port
    }

    /// Its nodes are played: nobody is at any address.
    async fn answers(&self, _: &Address) {}
}

impl Stage for Local {
    async fn get(&self, object: &Ref) -> Option<Value> {
        Local::get(self, object).map(|object| (*object).clone())
    }

    async fn all(&self, ty: Type, namespace: &str) -> Vec<Value> {
        let all = Local::all(self, ty).into_iter();
        all.filter(|object| object["metadata"]["namespace"] == namespace)
            .map(|object| (*object).clone())
            .collect()
    }

    async fn delete(&self, object: &Ref) {
        self.remove(object, Propagation::Background).expect("it is deleted");
    }

    /// Each pod has a port of its own, which no other has.
    fn port_of(&self, pod: &Value, deployment: &Deployment) -> Port {
        let port = pod["spec"]["containers"][0]["ports"][0]["containerPort"].as_i64().expect("a port");
        let port = Port::new(port).expect("a port");
        assert_ne!(port, deployment.port, "it is its own");
        port
    }

    async fn answers(&self, address: &Address) {
        let address = address.to_string();
        eventually(&format!("{address} answers"), async || {
            let ask = async {
                let mut stream = TcpStream::connect(&address).await?;
                stream.write_all(b"GET /story HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.map(|_| answer)
            };
            let answer = ask.await.map_err(|error| error.to_string())?;
            if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
        })
        .await;
    }
}
