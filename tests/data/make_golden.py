"""Make the stored model of format 2 that later releases must still read. Run once per format."""

from pathlib import Path

import numpy as np
import pandas as pd

from dsgp import AdditiveGPRegressor
from dsgp.kernels import Matern32, Matern52


def main() -> None:
    folder = Path(__file__).parent
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 70, 60).round(), "dose": rng.exponential(0.01, 60)})
    y = np.sin(X["age"] / 8) + 30 * X["dose"] + 0.1 * rng.standard_normal(60)
    model = AdditiveGPRegressor(
        Matern52(), terms={"age": Matern32(lengthscale=9.0, fixed="lengthscale")}
    ).fit(X, y)
    model.save(folder / "additive-format-2.zarr", overwrite=True)
    new = np.column_stack([np.linspace(10, 80, 15), np.linspace(-0.01, 0.1, 15)])
    mean, std = model.predict(new, return_std=True, include_noise=True)
    np.savez(folder / "additive-format-2.npz", X=new, mean=mean, std=std)


if __name__ == "__main__":
    main()
