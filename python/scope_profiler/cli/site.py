"""``scope-profiler site MANIFEST``: pages about many runs, for a site that Astro builds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from scope_profiler.cli import CommandError, complain
from scope_profiler.cli.terminal import Progress, one_line, printable

if TYPE_CHECKING:
    from scope_profiler.cli.terminal import Output

DESCRIPTION = (
    "Write pages about the runs that a manifest lists into a project of Astro's Starlight: to src/content/docs/catalogue, with "
    "reports and files in public/catalogue. Both are replaced each time."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("manifest", metavar="MANIFEST", help="YAML file that lists the cases and their runs")
    parser.add_argument("-o", "--output", metavar="DIR", default="docs", help="the project to write into (default: docs)")
    parser.add_argument("--base", metavar="PATH", help="path of the site on its host, such as /name (default: base of the manifest)")
    parser.add_argument("--check", action="store_true", help="only check the manifest and the files that it lists")
    parser.add_argument("--no-charts", action="store_true", help="pages and tables only, no reports")
    parser.add_argument("--no-clean", action="store_true", help="write into the directories as they are")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the site. 0."""
    from scope_profiler.astro_site import SiteError, build_site, check_site, load_manifest

    try:
        manifest = load_manifest(arguments.manifest)
        cases = f"{len(manifest.cases)} {'case' if len(manifest.cases) == 1 else 'cases'}"
        runs = f"{manifest.run_count} {'run' if manifest.run_count == 1 else 'runs'}"
        if arguments.check:
            check_site(manifest)
            output.line(printable(f"{arguments.manifest}: {cases}, {runs}, all can be read"))
            return 0
        with Progress(f"writing pages to {arguments.output}"):
            result = build_site(
                manifest, arguments.output, base=arguments.base, charts=not arguments.no_charts, clean=not arguments.no_clean
            )
    except (SiteError, ImportError) as error:
        raise CommandError(one_line(error)) from None
    for note in result.notes:
        complain(f"scope-profiler: left out {one_line(note)}")
    output.line(printable(f"wrote {arguments.output}: {cases}, {runs}, {len(result.files)} files"))
    return 0
