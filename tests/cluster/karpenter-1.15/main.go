// Command karpenter is that of ../karpenter with Karpenter v1.15, whose parts are put together in
// another way.
package main

import (
	"fmt"
	"os"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
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
	repairs, err := health.NewRepairPolicyMatcher(ctx, decorated)
	if err != nil {
		fmt.Fprintln(os.Stderr, "repair policies:", err)
		os.Exit(1)
	}
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated, state.WithRepairPolicyMatcher(repairs))
	op.
		WithControllers(ctx, controllers.NewControllers(
			ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder,
			decorated, faulty, cluster, op.InstanceTypeStore, op.PredictionStore,
		)...).
		WithControllers(ctx, &answers{client: op.GetClient()}).
		Start(ctx)
}
