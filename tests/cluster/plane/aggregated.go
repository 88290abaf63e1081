package plane

import (
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const queryService = "muster"

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// ServeAggregated lets the API server hand requests for Muster's group on, to a Muster that is
// started hereafter: it applies the manifest, and stands in for the Service's endpoints and
// kube-proxy. The returned function takes all of it back.
func (p *Plane) ServeAggregated(manifest string) (func() error, error) {
	addresses, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	service, err := p.Client.CoreV1().Services(deploymentNamespace).Get(p.context, queryService, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	name, port, ready := "api", int32(8443), true
	slices := p.Client.DiscoveryV1().EndpointSlices(deploymentNamespace)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "muster-tests", Labels: map[string]string{discoveryv1.LabelServiceName: queryService}},
		AddressType: discoveryv1.AddressTypeIPv4,
		// The API server asks only whether there is one: loopback can't be.
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	if _, err := slices.Create(p.context, slice, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	p.gate.route(service.Spec.ClusterIP, addresses[0])
	p.Muster.AggregatedAddress = addresses[0]
	stop := func() error {
		p.Muster.AggregatedAddress = ""
		_, err := p.Kubectl("delete", "apiservice", apiService, "--ignore-not-found")
		p.gate.route(service.Spec.ClusterIP, "")
		if gone := slices.Delete(p.context, slice.Name, metav1.DeleteOptions{}); err == nil {
			err = gone
		}
		return err
	}
	if _, err := p.Kubectl("apply", "--server-side", "--validate=strict", "--filename="+manifest); err != nil {
		_ = stop()
		return nil, err
	}
	return stop, nil
}

// AwaitAggregated returns once the API server hands requests on.
func (p *Plane) AwaitAggregated() error {
	return p.await("the APIService to be available", time.Minute, func() error {
		object, err := p.Dynamic.Resource(apiServices).Get(p.context, apiService, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, each := range conditions {
			condition, _ := each.(map[string]any)
			if condition["type"] == "Available" && condition["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("%v", conditions)
	})
}
