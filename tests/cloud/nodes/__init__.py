"""The rendered Serve config on Ray clusters of several nodes, as KubeRay runs it: heads, nodes and versions that go."""
