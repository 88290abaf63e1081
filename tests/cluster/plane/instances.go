package plane

import (
	"encoding/json"
	"fmt"
)

// InstanceType is the name of the instance type with this many GPUs that the
// kwok provider offers.
func InstanceType(gpus int) string { return fmt.Sprintf("gpu-%d", gpus) }

// instanceTypesTable is the same for Muster: name, cpu, memory, GPUs, Neuron
// devices, EFA devices, accelerator.
func instanceTypesTable() []byte {
	var table []byte
	for _, gpus := range gpuCounts {
		table = fmt.Appendf(table, "%s %d %dGi %d 0 %d -\n", InstanceType(gpus), 12*gpus, 64*gpus, gpus, gpus)
	}
	return table
}

// gpuCounts are the usual numbers of GPUs.
var gpuCounts = []int{1, 2, 4, 8}

// TwoZones is the number of GPUs of the type that a second zone has too, at a
// higher price. The others are in one zone only.
const TwoZones = 4

// Zone and DearerZone are where there are nodes.
const (
	Zone       = "us-west-2a"
	DearerZone = "us-west-2b"
)

// instanceTypesJSON is the list that Karpenter's kwok provider reads: one type
// for each usual number of GPUs, the cheaper the smaller.
func instanceTypesJSON() []byte {
	var types []any
	for _, gpus := range gpuCounts {
		types = append(types, map[string]any{
			"name":             InstanceType(gpus),
			"architecture":     "amd64",
			"operatingSystems": []string{"linux"},
			"resources": map[string]string{
				"cpu":                   fmt.Sprint(12 * gpus),
				"memory":                fmt.Sprintf("%dGi", 64*gpus),
				"ephemeral-storage":     "100Gi",
				"pods":                  "110",
				"nvidia.com/gpu":        fmt.Sprint(gpus),
				"vpc.amazonaws.com/efa": fmt.Sprint(gpus),
			},
			"offerings": offerings(gpus),
		})
	}
	content, err := json.Marshal(types)
	if err != nil {
		panic(err)
	}
	return content
}

func offerings(gpus int) []any {
	all := []any{offering(Zone, 4*gpus)}
	if gpus == TwoZones {
		all = append(all, offering(DearerZone, 5*gpus))
	}
	return all
}

func offering(zone string, price int) any {
	return map[string]any{
		"Price":     price,
		"Available": true,
		"Requirements": []any{
			map[string]any{"key": "karpenter.sh/capacity-type", "operator": "In", "values": []string{"on-demand"}},
			map[string]any{"key": "topology.kubernetes.io/zone", "operator": "In", "values": []string{zone}},
		},
	}
}
