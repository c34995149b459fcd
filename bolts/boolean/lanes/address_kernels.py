"""Arrays that kernels find by their addresses. Imports numpy and numba only.

A kernel that is given thirty arrays takes several microseconds before it begins, and each function that it calls gets their addresses,
sizes and strides anew. So kernels are given a *handle*: the address of an array that has the addresses and sizes of all the others.
``index.block`` reads what is needed there. How many numbers a row has is known to the compiler.

Whoever calls a kernel holds all these arrays meanwhile. Without compilation a handle is a tuple with the arrays themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.core import config, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, models, register_model
from numba.np.arrayobj import populate_array

__all__ = ["Field", "addresses", "handle_of", "opener"]


class Field(NamedTuple):
    """An array as kernels see it.

    :ivar place: of the array in the handle; several fields may show one array, as numbers of different types.
    :ivar dtype: of its numbers.
    :ivar width: numbers in a row; 0: as many as the handle says.
    :ivar flat: there is one dimension; ``width`` is then the number of elements for each of the array's own, at least 1.
    """

    place: int
    dtype: types.Type
    width: int = 1
    flat: bool = False

    @property
    def array(self) -> types.Type:
        """The type that it has in kernels."""
        return types.Array(self.dtype, 1 if self.flat else 2, "C")


class Handle(types.Type):
    """The type of a handle in kernels.

    :param fields: (name, field) of each; an attribute whose field is None is the handle itself.
    """

    def __init__(self, name: str, fields: tuple[tuple[str, Field | None], ...]) -> None:
        self.fields = fields
        super().__init__(f"Handle({name})")

    def field(self, name: str) -> Field | None:
        """Return a field.

        :raises KeyError: there is no such field.
        """
        return dict(self.fields)[name]


@register_model(Handle)
class _HandleModel(models.PrimitiveModel):
    """A handle is an address."""

    def __init__(self, manager, kind):
        super().__init__(manager, kind, manager.lookup(types.int64).get_value_type())


@infer_getattr
class _HandleAttributes(AttributeTemplate):
    key = Handle

    def generic_resolve(self, kind, name):
        """Return the type of an attribute."""
        if name not in dict(kind.fields):
            return None
        field = kind.field(name)
        return kind if field is None else field.array


@lower_getattr_generic(Handle)
def _emit_attribute(context, builder, kind, value, name):
    field = kind.field(name)
    if field is None:
        return value
    number = context.get_value_type(types.int64)
    base = builder.inttoptr(value, number.as_pointer())

    def read(column):
        found = builder.load(builder.gep(base, [number(3 * field.place + column)]))
        found.set_metadata("invariant.load", builder.module.add_metadata([]))  # a handle does not change while a kernel runs
        return found

    size = context.get_abi_sizeof(context.get_data_type(field.dtype))
    if field.flat:
        rows = read(1)
        shape = [rows if field.width == 1 else builder.mul(rows, number(field.width))]
        strides = [number(size)]
    else:
        width = number(field.width) if field.width else read(2)
        shape, strides = [read(1), width], [builder.mul(width, number(size)), number(size)]
    array = context.make_array(field.array)(context, builder)
    data = builder.inttoptr(read(0), context.get_data_type(field.dtype).as_pointer())
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=number(size), meminfo=None)
    return array._getvalue()


def addresses(arrays):
    """Return int64[n, 3]: address, rows and numbers in a row of arrays of one or two dimensions in C order."""
    return np.array([(array.ctypes.data, len(array), array.shape[1] if array.ndim == 2 else 1) for array in arrays], np.int64)


def handle_of(table, arrays, views=None):
    """Return what kernels are given.

    :param table: what :func:`addresses` returned; the caller keeps it.
    :param arrays: a tuple with the fields, for runs without compilation.
    :param views: what makes that tuple of ``arrays``, if they are not it.
    """
    if config.DISABLE_JIT:
        return arrays if views is None else views(arrays)
    return table.ctypes.data


def opener(name, fields):
    """Return a function that opens a handle in a kernel: attributes of what it returns are the fields.

    :param name: of the kind of handle.
    :param fields: name -> :class:`Field`, or None for the handle itself.
    """
    if config.DISABLE_JIT:
        return lambda handle: handle
    kind = Handle(name, tuple(fields.items()))

    @intrinsic
    def opened(typingctx, handle):
        """Return the same address, with fields."""

        def _emit(context, builder, signature, args):
            return args[0]

        return kind(types.int64), _emit

    return opened
