"""The terminal UI on Textual: navigation at the left, at the right what the chosen node has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import ContentSwitcher, DataTable, Footer, Input, Label, Static, Tree
from textual.widgets.tree import TreeNode
from textual.worker import Worker, get_current_worker

from scope_profiler.cli import CommandError
from scope_profiler.cli.terminal import one_line, printable
from scope_profiler.tui.model import Node, PlotView, TableView, TextView, View, root_nodes
from scope_profiler.tui.plots import Choice, Plotter

if TYPE_CHECKING:
    from scope_profiler.results import ProfilingResults

__all__ = ["ProfileApp"]

ROWS = 200  # of a table that are added at once
_MORE = object()  # what the node has that brings the next children


class ProfileApp(App[None]):
    """Shows one profile. Nothing of it is read before it is looked at."""

    TITLE = "scope-profiler"
    CSS = """
    #navigation { width: 34%; min-width: 24; border: round $primary; }
    #right { border: round $primary; }
    #search { display: none; }
    #pages { height: 1fr; }
    #settings { display: none; height: auto; }
    #patterns { height: 3; }
    #settings Input { width: 1fr; }
    #state { height: 1; color: $text-muted; padding: 0 1; }
    #text { padding: 0 1; width: auto; }
    #chosen { padding: 0 1; max-height: 4; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("escape", "focus_navigation", "Navigation"),
        Binding("slash", "search", "Search"),
        Binding("o", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("g", "plot('window')", "Matplotlib"),
        Binding("p", "plot('browse')", "Plotly"),
        Binding("t", "plot('text')", "Text plot"),
        Binding("s", "plot('save')", "Save plot"),
        Binding("v", "snakeviz", "Snakeviz"),
    ]

    def __init__(self, results: ProfilingResults, path: str, plot_output: str | None = None) -> None:
        super().__init__()
        self._results = results
        self._path = path
        self._plotter = Plotter(results, path, plot_output)
        self._shown: View | None = None
        self._order: Sequence[int] = ()
        self._column: int | None = None
        self._descending = False
        self._growing: set[Any] = set()  # places whose children are being read

    def compose(self) -> ComposeResult:
        """The widgets."""
        with Horizontal():
            yield Tree(Text(printable(self._path)), id="navigation")
            with Vertical(id="right"):
                yield Input(placeholder="search", id="search")
                with ContentSwitcher(initial="page", id="pages"):
                    with VerticalScroll(id="page"):
                        yield Static(id="text")
                    yield DataTable(id="table", cursor_type="row", zebra_stripes=True)
                with Vertical(id="settings"):
                    with Horizontal(id="patterns"):
                        yield Input(placeholder="regions to include, with commas between them", id="include")
                        yield Input(placeholder="regions to leave out", id="exclude")
                    yield Static(id="chosen")
                yield Label(id="state")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the first level."""
        tree = self._tree
        tree.root.expand()
        for node in root_nodes(self._results, self._path):
            self._add(tree.root, node)
        tree.focus()
        self.call_after_refresh(tree.move_cursor, tree.root.children[0])  # which shows it

    def on_unmount(self) -> None:
        """End what was started."""
        self._plotter.close()

    @property
    def _tree(self) -> Tree[Any]:
        return self.query_one("#navigation", Tree)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#table", DataTable)

    def tell(self, words: str) -> None:
        """What goes on, in the last line."""
        self.query_one("#state", Label).update(Text(printable(words), no_wrap=True, overflow="ellipsis"))

    # -- navigation ----------------------------------------------------------------------------------------------------

    def _add(self, parent: TreeNode[Any], node: Node) -> TreeNode[Any]:
        return parent.add(Text(node.label), data=node, allow_expand=node.children is not None)

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[Any]) -> None:
        """The children of a node are made when it is opened for the first time."""
        if isinstance(event.node.data, Node) and not event.node.children and event.node.id not in self._growing:
            self._grow(event.node, event.node.data)

    def _grow(self, place: TreeNode[Any], node: Any) -> Worker[None]:
        self._growing.add(place.id)
        return self._read_children(place, node)

    @work(thread=True, group="grow")
    def _read_children(self, place: TreeNode[Any], node: Node) -> None:
        self.call_from_thread(self.tell, "reading ...")
        try:
            children, more = node.more()
        except Exception as error:  # the file may have anything in it, or be gone by now
            self.call_from_thread(self._give_up, place, one_line(error))
            return
        self.call_from_thread(self._put_children, place, children, more)

    def _give_up(self, place: TreeNode[Any], why: str) -> None:
        self._growing.discard(place.id)
        self.tell(why)

    def _put_children(self, place: TreeNode[Any], children: Sequence[Node], more: bool) -> None:
        self._growing.discard(place.id)
        for child in children:
            self._add(place, child)
        if more:
            place.add_leaf(Text("... more"), data=_MORE)
        if not place.children:
            place.allow_expand = False
        self.tell("")

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[Any]) -> None:
        """The node under the cursor is the one that is shown."""
        if isinstance(event.node.data, Node):
            self._look_at(event.node.data)

    def on_tree_node_selected(self, event: Tree.NodeSelected[Any]) -> None:
        """Enter shows a node, or more of its siblings."""
        parent = event.node.parent
        if event.node.data is _MORE and parent is not None:
            event.node.remove()
            self._grow(parent, parent.data)
        elif isinstance(event.node.data, Node):
            self._look_at(event.node.data)

    def action_focus_navigation(self) -> None:
        """Back to the navigation."""
        self._tree.focus()

    # -- what is shown -------------------------------------------------------------------------------------------------

    @work(thread=True, exclusive=True, group="look")
    def _look_at(self, node: Node) -> None:
        worker = get_current_worker()
        self.call_from_thread(self.tell, "reading ...")
        view: View
        try:
            view = node.view()
        except Exception as error:  # as above
            view = TextView([one_line(error)])
        if not worker.is_cancelled:
            self.call_from_thread(self._show, view)

    def _show(self, view: View) -> None:
        self._shown = view
        self.tell("")
        search = self.query_one("#search", Input)
        searchable = isinstance(view, TableView) and view.table.searched is not None
        with self.prevent(Input.Changed):
            search.value = ""
        search.display = searchable
        self.query_one("#settings").display = isinstance(view, PlotView)
        if isinstance(view, TableView):
            self._column, self._descending = None, False
            self._show_table(view)
            return
        if isinstance(view, PlotView):
            self._show_text([view.words, "", "t draws it here, g in a window, p in the browser; s saves it."])
            self._show_chosen()
        else:
            self._show_text(view.lines)

    def _show_text(self, lines: Sequence[str]) -> None:
        self.query_one("#text", Static).update(Text("\n".join(lines), no_wrap=True))
        self.query_one("#page").scroll_home(animate=False)
        self.query_one(ContentSwitcher).current = "page"

    # -- tables --------------------------------------------------------------------------------------------------------

    def _show_table(self, view: TableView) -> None:
        table = self._table
        table.clear(columns=True)
        for number, column in enumerate(view.table.columns):
            sign = "" if number != self._column else " ▼" if self._descending else " ▲"
            table.add_column(Text(column.title + sign, justify="right" if column.is_number else "left"), key=str(number))
        self._order = view.table.order(self.query_one("#search", Input).value, self._column, self._descending)
        self._add_rows(view)
        self.query_one(ContentSwitcher).current = "table"
        self._count(view)

    def _count(self, view: TableView) -> None:
        found = len(self._order)
        whole = f"{found:,} of {len(view.table):,}" if found < len(view.table) else f"{found:,}"
        one = {"entries": "entry"}.get(view.what, view.what[:-1])
        self.tell(f"{whole} {one if len(view.table) == 1 else view.what}")

    def _add_rows(self, view: TableView) -> None:
        table = self._table
        begin = table.row_count
        right = [column.is_number for column in view.table.columns]
        for place in range(begin, min(begin + ROWS, len(self._order))):
            row = int(self._order[place])
            cells = view.table.cells(row)
            table.add_row(*(Text(cell, justify="right" if number else "left") for cell, number in zip(cells, right)), key=str(row))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Near the end of what is there, the next rows are added."""
        if isinstance(self._shown, TableView) and event.cursor_row >= self._table.row_count - 10:
            self._add_rows(self._shown)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter goes to the node of a row, where there is one."""
        if isinstance(self._shown, TableView) and self._shown.choose is not None and event.row_key.value is not None:
            self._go_to(self._shown.choose(int(event.row_key.value)))

    @work(group="go")
    async def _go_to(self, labels: tuple[str, ...]) -> None:
        place = self._tree.root
        for label in labels:
            while True:
                if place.data is not None and not place.children:
                    await self._grow(place, place.data).wait()
                found = [child for child in place.children if str(child.label) == label]
                last = place.children[-1] if place.children else None
                if found or last is None or last.data is not _MORE:
                    break
                last.remove()
                await self._grow(place, place.data).wait()
            if not found:
                return
            place.expand()
            place = found[0]
        self._tree.focus()
        self.call_after_refresh(self._tree.move_cursor, place)  # a new node has its line only then

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """A click on a title sorts by its column, a second one the other way round."""
        self._sort_by(event.column_index)

    def _sort_by(self, column: int) -> None:
        view = self._shown
        if not isinstance(view, TableView):
            return
        if column == self._column:
            self._descending = not self._descending
        else:
            self._column, self._descending = column, view.table.columns[column].is_number
        self._show_table(view)

    def action_sort(self) -> None:
        """Sort by the next column."""
        if isinstance(self._shown, TableView):
            self._sort_by(0 if self._column is None else (self._column + 1) % len(self._shown.table.columns))

    def action_reverse(self) -> None:
        """Sort the other way round."""
        if self._column is not None:
            self._sort_by(self._column)

    def action_search(self) -> None:
        """Type what to look for."""
        search = self.query_one("#search", Input)
        if search.display:
            search.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes from what is typed to what it is about."""
        (self._table if event.input.id == "search" else self._tree).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """What is typed takes effect at once."""
        if event.input.id == "search" and isinstance(self._shown, TableView):
            self._show_table(self._shown)
        elif event.input.id != "search":
            self._show_chosen()

    # -- plots ---------------------------------------------------------------------------------------------------------

    def _choice(self) -> Choice:
        return Choice(self.query_one("#include", Input).value, self.query_one("#exclude", Input).value)

    def _show_chosen(self) -> None:
        try:
            names = self._choice().names(self._results)
        except CommandError as error:
            words = str(error)
        else:
            shown = ", ".join(map(printable, names[:12])) + (f" and {len(names) - 12:,} more" if len(names) > 12 else "")
            words = f"{len(names):,} of {len(self._results):,} regions: {shown}" if names else "no region"
        self.query_one("#chosen", Static).update(Text(printable(words)))

    def action_plot(self, how: str) -> None:
        """Do something with the plot that is shown."""
        if not isinstance(self._shown, PlotView):
            self.tell("choose a plot first")
            return
        kind, choice = self._shown.kind, self._choice()
        if how == "text":
            self._run(lambda: self._plotter.text(kind, choice), self._show_plot)
        else:
            self._run(lambda: getattr(self._plotter, how)(kind, choice), self.tell)

    def action_snakeviz(self) -> None:
        """Open the profile in snakeviz."""
        self._run(self._plotter.snakeviz, self.tell)

    def _show_plot(self, text: str) -> None:
        if isinstance(self._shown, PlotView):
            self._show_text(text.splitlines())
        self.tell("")

    @work(thread=True, exclusive=True, group="plot")
    def _run(self, make: Callable[[], str], done: Callable[[str], None]) -> None:
        self.call_from_thread(self.tell, "drawing ...")
        try:
            told = make()
        except CommandError as error:
            self.call_from_thread(self.tell, str(error))
        except Exception as error:  # a plot library may fail in any way
            self.call_from_thread(self.tell, one_line(error))
        else:
            self.call_from_thread(done, told)
