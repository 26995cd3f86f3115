"""A package ``holidays`` of one country, for tests that do without the real one."""

from types import SimpleNamespace

import pandas as pd


class Country(dict):
    """Names by dates, as ``holidays.HolidayBase`` has them."""

    default_language = "xx"
    estimated_label = "%s (perhaps)"
    observed_label = "%s (in lieu)"
    observed_estimated_label = "%s (in lieu, perhaps)"

    def get_list(self, date):
        """Return the names of a date, each of those that are joined."""
        return self[date].split("; ")


def package_of(country, names):
    """Return a package that knows one country, of names by (month, day)."""

    def country_holidays(asked, years=(), language=None):
        if asked != country:
            raise NotImplementedError
        # Without a language, names are those of the machine's locale.
        ending = "" if language == Country.default_language else " (translated)"
        return Country(
            {
                pd.Timestamp(year, *day).date(): name + ending
                for year in years
                for day, name in names.items()
            }
        )

    return SimpleNamespace(country_holidays=country_holidays)
