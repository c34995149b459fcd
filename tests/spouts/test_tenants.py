"""The quotas of tenants in a configuration."""

import doctest

import pytest

from dskype.spouts import tenants as module
from dskype.spouts.settings import Settings
from dskype.spouts.tenants import Quota, tenant_in
from dskype.topology.errors import IllegalArgumentException


def quotas(value):
    return Settings.from_conf({"dskype.tenants": value}).tenants


def test_quotas_are_read_and_what_is_left_out_has_no_bound():
    assert quotas(None) == {} == Settings.from_conf({}).tenants
    assert quotas({}) == {"default": Quota()}
    found = quotas({"acme": {"max_subscriptions": 0, "max_registrations_per_s": None}, "default": {"max_registrations_per_s": 3}})
    assert found == {"acme": Quota(0), "default": Quota(None, 3)}
    assert [tenant_in(found, name) for name in ("acme", "other", None, "default")] == ["acme", "default", "default", "default"]
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], r"given: \[\]; legal: a map from names of tenants"),
        ({5: {}}, "given: 'the tenant 5'; legal: 1 to 64 ASCII letters.*hint: quote a name that YAML would read as a number"),
        ({"a b": {}}, "given: \"the tenant 'a b'\""),
        ({"acme": 5}, "given: 'acme: 5'; legal: a map of quotas"),
        ({"acme": {"subscriptions": 5}}, "given: \"acme: 'subscriptions'\"; legal: max_subscriptions, max_registrations_per_s"),
        ({"acme": {"max_subscriptions": -1}}, "given: 'acme: max_subscriptions: -1'; legal: an integer, 0 or more, or null"),
        ({"acme": {"max_subscriptions": True}}, "max_subscriptions: True"),
        ({"acme": {"max_results_per_s": 0}}, "max_results_per_s: 0'; legal: an integer, 1 or more"),
        ({"acme": {"max_registrations_per_s": 0.5}}, "max_registrations_per_s: 0.5"),
        ({f"t{i}": {} for i in range(1001)}, "given: '1001 tenants'; legal: at most 1000; hint: let small tenants share"),
    ],
)
def test_quotas_that_make_no_sense_are_refused_by_name(value, words):
    with pytest.raises(IllegalArgumentException, match=f"dskype.tenants is not usable.*{words}"):
        quotas(value)
