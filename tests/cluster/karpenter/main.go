// Command karpenter is Karpenter with its kwok provider, made to fail on order
// (../faults). Without an order it is what sigs.k8s.io/karpenter/kwok is.
package main

import (
	"fmt"
	"os"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

func main() {
	ctx, op := operator.NewOperator()
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "instance types:", err)
		os.Exit(1)
	}
	faulty := newProvider(ctx, op.GetClient(), instanceTypes)
	decorated := overlay.Decorate(faulty, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated)
	op.
		WithControllers(ctx, controllers.NewControllers(
			ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder,
			decorated, faulty, cluster, op.InstanceTypeStore,
		)...).
		WithControllers(ctx, &answers{client: op.GetClient()}).
		Start(ctx)
}
