package main

import (
	"context"

	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/kwok/apis/v1alpha1"

	"muster.dev/tests/cluster/faults"
)

// answers tells each KWOKNodeClass with an order whether it is understood, so
// that no case runs without the faults that it is about.
type answers struct {
	client client.Client
}

// Register makes it one of the manager's controllers.
func (a *answers) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("faults.answers").
		For(&v1alpha1.KWOKNodeClass{}).
		Complete(reconcile.AsReconciler(m.GetClient(), a))
}

// Reconcile answers an order that has no answer yet.
func (a *answers) Reconcile(ctx context.Context, class *v1alpha1.KWOKNodeClass) (reconcile.Result, error) {
	order := class.Annotations[faults.OrderAnnotation]
	if order == "" || class.Annotations[faults.AnswerAnnotation] != "" {
		return reconcile.Result{}, nil
	}
	answer := faults.Accepted
	if _, err := faults.Parse(order); err != nil {
		log.FromContext(ctx).Error(err, "refused to fail on order", "KWOKNodeClass", class.Name, "order", order)
		answer = "refused: " + err.Error()
	}
	return reconcile.Result{}, client.IgnoreNotFound(annotate(ctx, a.client, class.DeepCopy(), faults.AnswerAnnotation, answer))
}
