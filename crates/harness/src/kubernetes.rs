//! The real API server, as a test looks at it and meddles with it.

use agent::object::{Ref, Type};
use http::{Method, Request};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

/// The cluster, with an administrator's rights.
#[derive(Clone)]
pub struct Kubernetes {
    pub client: Client,
}

/// The environment variable that names the file with an administrator's rights, and with an agent's.
pub const ADMIN: &str = "KRANE_TEST_KUBECONFIG";
pub const AGENT: &str = "KRANE_TEST_KUBECONFIG_AGENT";

/// Where a kubeconfig of `cargo xtask test` is.
pub fn kubeconfig(variable: &str) -> std::path::PathBuf {
    std::env::var_os(variable).unwrap_or_else(|| panic!("`cargo xtask test` sets {variable}")).into()
}

impl Kubernetes {
    pub async fn connect() -> Kubernetes {
        let file = Kubeconfig::read_from(kubeconfig(ADMIN)).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        Kubernetes { client: Client::try_from(config.expect("a good kubeconfig")).expect("a client") }
    }

    /// What the API server calls a type.
    pub fn resource(ty: Type) -> ApiResource {
        let kind = GroupVersionKind::gvk(ty.group(), ty.version(), ty.kind());
        ApiResource::from_gvk_with_plural(&kind, ty.plural())
    }

    pub fn api(&self, ty: Type, namespace: &str) -> Api<DynamicObject> {
        let resource = Kubernetes::resource(ty);
        if ty.is_namespaced() {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    /// The objects of a type in all namespaces.
    pub fn everywhere(&self, ty: Type) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(ty.group(), ty.version(), ty.kind());
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, ty.plural()))
    }

    /// The object as it is, if it is there.
    pub async fn get(&self, object: &Ref) -> Option<Value> {
        let found = self.api(object.ty, &object.namespace).get_opt(&object.name).await.expect("it answers");
        found.map(|found| serde_json::to_value(found).expect("an object is JSON"))
    }

    /// The names of all objects of a type in a namespace.
    pub async fn names(&self, ty: Type, namespace: &str) -> Vec<String> {
        let list = self.api(ty, namespace).list(&ListParams::default()).await.expect("it answers");
        list.items.into_iter().filter_map(|object| object.metadata.name).collect()
    }

    /// Who holds the Lease of this name, if anybody does; nothing, if there is none.
    pub async fn lease_holder(&self, namespace: &str, name: &str) -> Option<Option<String>> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let lease = api.get_opt(name).await.expect("it answers")?;
        let holder = lease.data["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        Some(Some(holder).filter(|holder| !holder.is_empty()))
    }

    /// Every object of a type in a namespace, as it is.
    pub async fn all(&self, ty: Type, namespace: &str) -> Vec<Value> {
        let list = self.api(ty, namespace).list(&ListParams::default()).await.expect("it answers");
        list.items.into_iter().map(|object| serde_json::to_value(object).expect("JSON")).collect()
    }

    /// A stranger's edit: a merge patch under a manager of its own.
    pub async fn edit(&self, object: &Ref, patch: Value) {
        let params = PatchParams { field_manager: Some("stranger".to_owned()), ..PatchParams::default() };
        let api = self.api(object.ty, &object.namespace);
        api.patch(&object.name, &params, &Patch::Merge(patch)).await.expect("the edit is taken");
    }

    /// A stranger's edit by one operation of a JSON patch, if the API server takes it: the object as it is then.
    pub async fn operate(&self, object: &Ref, operation: &Value) -> Result<Value, kube::Error> {
        let patch = serde_json::json!([operation]).to_string();
        let content = "application/json-patch+json";
        self.send(Method::PATCH, object, "fieldManager=stranger", content, patch).await
    }

    /// Puts an object in the place of the one that is there, if that is still as it says.
    pub async fn replace(&self, object: &Ref, with: &Value) -> Result<Value, kube::Error> {
        self.send(Method::PUT, object, "fieldManager=stranger", "application/json", with.to_string()).await
    }

    async fn send(
        &self,
        method: Method,
        object: &Ref,
        query: &str,
        content: &str,
        body: String,
    ) -> Result<Value, kube::Error> {
        let Ref { ty, namespace, name } = object;
        let group = match ty.group() {
            "" => "/api/v1".to_owned(),
            _ => format!("/apis/{}", ty.api_version()),
        };
        let place = if ty.is_namespaced() { format!("/namespaces/{namespace}") } else { String::new() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{group}{place}/{}/{name}?{query}", ty.plural()))
            .header("content-type", content)
            .body(body.into_bytes());
        self.client.request(request.expect("a request")).await
    }

    /// What a controller has to say of an object.
    pub async fn observe(&self, object: &Ref, status: Value) {
        let params = PatchParams { field_manager: Some("stranger".to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(serde_json::json!({ "status": status }));
        let api = self.api(object.ty, &object.namespace);
        api.patch_status(&object.name, &params, &patch).await.expect("the status is taken");
    }

    /// A stranger's deletion.
    pub async fn delete(&self, object: &Ref) {
        let api = self.api(object.ty, &object.namespace);
        api.delete(&object.name, &DeleteParams::default()).await.expect("it is deleted");
    }

    /// Lets the user `agent` do what the printed role says, for an agent whose Lease is in this namespace.
    pub async fn grant(&self, namespace: &str) {
        for mut manifest in agent::rbac::manifests(namespace) {
            if !manifest["subjects"].is_null() {
                let user = serde_json::json!({
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "agent",
                });
                manifest["subjects"] = serde_json::json!([user]);
            }
            self.apply(manifest).await;
        }
    }

    /// Applies any object, under a manager of the test's own.
    pub async fn apply(&self, manifest: Value) {
        self.apply_with(manifest, &PatchParams::apply("test").force()).await;
    }

    /// Has the API server say what it would make of an object, every field of which it must know.
    pub async fn would_apply(&self, manifest: Value) {
        let params = PatchParams { dry_run: true, ..PatchParams::apply("test").force().validation_strict() };
        self.apply_with(manifest, &params).await;
    }

    /// Takes away what was applied.
    pub async fn remove(&self, manifest: &Value) {
        let (api, name) = self.api_of(manifest);
        api.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
    }

    async fn apply_with(&self, manifest: Value, params: &PatchParams) {
        let (api, name) = self.api_of(&manifest);
        api.patch(&name, params, &Patch::Apply(manifest)).await.expect("it is applied");
    }

    fn api_of(&self, manifest: &Value) -> (Api<DynamicObject>, String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, version) = match manifest["apiVersion"].as_str().expect("a version").split_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), text(&manifest["apiVersion"])),
        };
        let kind = GroupVersionKind::gvk(&group, &version, &text(&manifest["kind"]));
        let resource = ApiResource::from_gvk(&kind);
        let (name, namespace) =
            (text(&manifest["metadata"]["name"]), text(&manifest["metadata"]["namespace"]));
        let api = if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &namespace, &resource)
        };
        (api, name)
    }
}
