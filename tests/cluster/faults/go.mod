module muster.dev/tests/cluster/faults

go 1.26
