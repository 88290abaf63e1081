"""Makes gangs, queues and nodes in the states that the page is to show, in the cluster of a demo that
runs: through its API server, as users and controllers would."""

import base64
import json
import re
import ssl
import tempfile
import urllib.request

GPU = "nvidia.com/gpu"


class Cluster:
    def __init__(self, kubeconfig: str):
        self.url = re.search(r"server: (\S+)", kubeconfig).group(1).strip('"')
        authority = re.search(r"certificate-authority-data: (\S+)", kubeconfig).group(1).strip('"')
        self.trust = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        certificate = re.search(r"client-certificate-data: (\S+)", kubeconfig)
        if certificate:
            key = re.search(r"client-key-data: (\S+)", kubeconfig)
            with tempfile.NamedTemporaryFile() as file:
                for each in (certificate, key):
                    file.write(base64.b64decode(each.group(1).strip('"')) + b"\n")
                file.flush()
                self.trust.load_cert_chain(file.name)

    def ask(self, method: str, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(
            self.url + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, context=self.trust, timeout=10) as answer:
            return json.load(answer)

    def gang(self, namespace: str, name: str, pods: int, minimum: int, queue: str = "", pool: str = "research",
             gpus: int = 1, timeout: int | None = None) -> None:
        labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
        spec = {"minMember": minimum} | ({"scheduleTimeoutSeconds": timeout} if timeout else {})
        self.ask("POST", f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups", {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": name, "labels": labels}, "spec": spec})
        for i in range(pods):
            self.pod(namespace, name, i, labels, pool, gpus)

    def pod(self, namespace: str, gang: str, index: int, labels: dict, pool: str, gpus: int = 1) -> None:
        self.ask("POST", f"/api/v1/namespaces/{namespace}/pods", {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{gang}-{index}", "labels": labels | {"scheduling.x-k8s.io/pod-group": gang}},
            "spec": {"schedulerName": "coscheduling", "nodeSelector": {"karpenter.sh/nodepool": pool},
                     "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
                     "containers": [{"name": "train", "image": "train",
                                     "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}}]}})

    def delete_gang(self, namespace: str, name: str) -> None:
        pods = self.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        for pod in pods:
            if pod["metadata"].get("labels", {}).get("scheduling.x-k8s.io/pod-group") == name:
                self.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
        self.ask("DELETE", f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups/{name}")

    def node_pool(self, name: str) -> None:
        self.ask("POST", "/apis/karpenter.sh/v1/nodepools", {
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g6.2xlarge"]}],
                "taints": [{"key": GPU, "effect": "NoSchedule"}],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}}},
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"}}})

    def queues(self) -> None:
        """Two ClusterQueues of a cohort, vision with 2 GPUs and speech with 4, and everybody else's."""
        kueue = "/apis/kueue.x-k8s.io/v1beta2"
        for pool in ("research", "gpu"):
            self.ask("POST", f"{kueue}/resourceflavors", {
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": pool},
                "spec": {"nodeLabels": {"karpenter.sh/nodepool": pool},
                         "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]}})
        for name, cohort, flavor, gpus in (("vision", "labs", "research", 2), ("speech", "labs", "research", 4), ("others", "", "gpu", 16)):
            self.ask("POST", f"{kueue}/clusterqueues", {
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
                "spec": {"namespaceSelector": {}} | ({"cohortName": cohort} if cohort else {}) | {"resourceGroups": [
                    {"coveredResources": [GPU], "flavors": [
                        {"name": flavor, "resources": [{"name": GPU, "nominalQuota": gpus}]}]}]}})
            namespace = "default" if name == "others" else name
            if namespace != "default":
                self.ask("POST", "/api/v1/namespaces", {
                    "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            self.ask("POST", f"{kueue}/namespaces/{namespace}/localqueues", {
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                "metadata": {"name": "default", "namespace": namespace}, "spec": {"clusterQueue": name}})
